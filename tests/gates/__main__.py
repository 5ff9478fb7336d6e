"""
Runs every gate over every preset: `python -m tests.gates`, which `make check` does.

Ends with 1 when there is an open finding.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from tests.gates.acknowledgements import ACKNOWLEDGED, look_at_acknowledgements, show_acknowledged
from tests.gates.assembly import Assembly, synthesize
from tests.gates.finding import Finding
from tests.gates.nag_2 import NAG_2, check_with_nag_2
from tests.gates.presets import PRESETS
from tests.gates.process_gates import BANDIT, CHECKOV, SOURCES, check_with_bandit, check_with_checkov
from tests.gates.promises import PROMISES, check_promises
from tests.gates.table import show
from tests.gates.template_gates import LINT, NAG, REFEREES, VALIDATOR, judge, lint, look_with_cdk

_WIDTH = 120
_PRESET_GATES = (NAG, NAG_2, VALIDATOR, LINT, REFEREES, CHECKOV, PROMISES, ACKNOWLEDGED)
_GATES_IN_PROCESS: Sequence[Callable[[Assembly], list[Finding]]] = (
    look_with_cdk,
    lint,
    judge,
    check_promises,
    look_at_acknowledgements,
)


def run(console: Console, folder: Path) -> list[Finding]:
    """
    Run every gate, saying what is being done.

    Args:
        console: Where progress is printed.
        folder: Where the stacks are written.

    Returns:
        The open findings.
    """
    begun = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - begun:5.1f} s[/] {text}", highlight=False)

    with ThreadPoolExecutor() as programs:
        say(f"{BANDIT} reads the programs")
        sources = programs.submit(check_with_bandit)
        say(f"{NAG_2} reads {len(PRESETS)} stacks with grants")
        with_aspects = programs.submit(check_with_nag_2)
        assemblies = []
        for preset, context in PRESETS.items():
            say(f"synthesizing {preset}, with {NAG} and the {VALIDATOR}")
            assemblies.append(synthesize(preset, context, folder / preset))
        say(f"{CHECKOV} reads {len(assemblies)} templates")
        checked = programs.submit(check_with_checkov, assemblies)
        findings = []
        for assembly in assemblies:
            say(f"{LINT}, the {REFEREES} and the {PROMISES} read {assembly.preset}")
            findings += [finding for gate in _GATES_IN_PROCESS for finding in gate(assembly)]
        say(f"waiting for {CHECKOV} and {NAG_2}")
        findings += [*checked.result(), *with_aspects.result(), *sources.result()]
    show_acknowledged(console, assemblies)
    return findings


def main() -> int:
    """Run the gates and show what they found; 1 with open findings."""
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else _WIDTH)
    with tempfile.TemporaryDirectory(prefix="gates-") as folder:
        findings = run(console, Path(folder))
    show(console, {**dict.fromkeys(PRESETS, _PRESET_GATES), SOURCES: (BANDIT,)}, findings)
    console.print(f"\n{len(findings)} open findings in {len(PRESETS)} presets and our programs", highlight=False)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
