"""Table of what a change of each prop does to nodes, jobs and data, from the templates before and after it."""

from collections.abc import Iterator, Sequence
from functools import cache

from deeplearning_cli.changes.effects import Change
from deeplearning_cli.changes.templates import compare_templates
from docs.changed_props import PLATFORMS, SAMPLES, Sample, list_props, synthesize

_LATER = {"EC2": "later nodes", "EMR": "later nodes", "EKS": "later jobs", "SageMaker": "later jobs"}
_NOT_TAKEN = " must be left out on "


def compare_samples() -> Iterator[tuple[Sample, str, tuple[Change, ...] | None]]:
    """Yield each sample with each of its platforms and the changes there; None where the platform refuses the prop."""
    for platform in PLATFORMS:
        props = list_props(platform)
        known: dict[str, dict[str, object]] = {}
        for sample in SAMPLES:
            if sample.prop not in props or platform not in sample.platforms:
                continue
            yield sample, platform, _compare(platform, sample, known)


def _compare(platform: str, sample: Sample, known: dict[str, dict[str, object]]) -> tuple[Change, ...] | None:
    templates = []
    for props in sample.list_props():
        key = repr(sorted(props.items(), key=lambda item: item[0]))
        try:
            if key not in known:
                known[key] = synthesize(platform, props)
        except ValueError as error:
            if _NOT_TAKEN not in str(error):
                raise
            return None
        templates.append(known[key])
    return compare_templates(*templates)


def describe(changes: Sequence[Change], platform: str) -> str:
    """Return what changes do, in the words of the table: bold for what `changes` ends with 1."""
    harms = {
        "refused": any(change.is_refused for change in changes),
        "data lost": any(change.loses_data for change in changes),
        "nodes end": any(change.ends_nodes for change in changes),
        "jobs end": any(change.ends_jobs for change in changes),
    }
    if harms["refused"]:
        return "**refused**"
    if found := [word for word, applies in harms.items() if applies]:
        # The end of a node is that of the jobs on it.
        return f"**{', '.join(word for word in found if (word, 'nodes end' in found) != ('jobs end', True))}**"
    is_later = any(outcome.reaches_later for change in changes for outcome in change.outcomes)
    return _LATER[platform] if is_later else "stays"


@cache
def changes_table() -> str:
    """Return a Markdown table of all props."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for sample, platform, changes in compare_samples():
        row = cells.setdefault((sample.prop, sample.label), {})
        row[platform] = "n/a" if changes is None else describe(changes, platform)
    rows = [f"| prop | {' | '.join(PLATFORMS)} |", "|---|---|---|---|---|"]
    for sample in SAMPLES:
        if row := cells.pop((sample.prop, sample.label), {}):
            name = f"`{sample.prop}`" + (f", {sample.label}" if sample.label else "")
            rows.append(f"| {name} | {' | '.join(row.get(platform, 'n/a') for platform in PLATFORMS)} |")
    return "\n".join(rows)
