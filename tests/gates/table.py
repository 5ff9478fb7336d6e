"""Shows what the gates found: a table of presets and gates, and every finding below."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from tests.gates.finding import Finding


def show(console: Console, looks: Mapping[str, Sequence[str]], findings: Sequence[Finding]) -> None:
    """
    Print the table and the findings.

    Args:
        console: Where.
        looks: Who was looked at, and by which gates.
        findings: What was found.
    """
    gates = list(dict.fromkeys(gate for found in looks.values() for gate in found))
    counts = Counter((finding.preset, finding.gate) for finding in findings)
    table = Table(title="open findings", title_justify="left")
    table.add_column("preset", no_wrap=True)
    for gate in gates:
        table.add_column(gate, justify="right", no_wrap=True)
    for preset, lookers in looks.items():
        cells = [_cell(counts[preset, gate]) if gate in lookers else "" for gate in gates]
        table.add_row(preset, *cells)
    console.print(table)
    every = {preset for preset, lookers in looks.items() if len(lookers) > 1}
    for (gate, rule, what, more), group in itertools.groupby(sorted(findings, key=_heading), _heading):
        console.print(f"\n[bold red]{gate} {rule}[/]: ", end="")
        console.print(f"{what}\n  read on: {more}", markup=False, highlight=False)
        presets_by_place: dict[str, list[str]] = {}
        for finding in group:
            presets_by_place.setdefault(finding.place, []).append(finding.preset)
        for place, presets in presets_by_place.items():
            where = ", ".join(dict.fromkeys(presets)) if set(presets) != every else "every preset"
            console.print(f"  {place} ({where})", markup=False, highlight=False)


def _heading(finding: Finding) -> tuple[str, str, str, str]:
    return finding.gate, finding.rule, finding.what, finding.more


def _cell(count: int) -> str:
    return f"[bold red]{count}[/]" if count else "[green]0[/]"
