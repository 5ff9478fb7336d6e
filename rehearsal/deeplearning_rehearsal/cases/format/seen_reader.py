"""Reads the table `[seen]` of a case file."""

from typing import Any

from deeplearning_rehearsal.cases.format.expectations import Seen
from deeplearning_rehearsal.cases.format.toml_table import Table

STATUSES = ("CREATE_COMPLETE", "ROLLBACK_COMPLETE")
ENVIRONMENTS = ("built", "kept", "failed")


def read_seen(table: Table) -> Seen:
    """
    Read what must be seen.

    Raises:
        CaseError: A key is unknown, or its value of another type.
    """
    seen = Seen(
        stack=_choose(table, "stack", STATUSES) if table.has("stack") else None,
        requested=table.find("requested", int),
        formed=table.find("formed", int),
        generation_at_least=table.find("generation_at_least", int),
        reason_contains=table.items("reason_contains", str),
        timeline_contains=table.items("timeline_contains", str),
        accuracy_at_least=table.find("accuracy_at_least", float),
        within_seconds=table.find("within_seconds", float),
        recovery_seconds_at_most=table.find("recovery_seconds_at_most", float),
        lost_commits_at_most=table.find("lost_commits_at_most", int),
        replacement_joins=_read_flag(table, "replacement_joins"),
        identical_files=_read_flag(table, "identical_files"),
        launches_at_most=table.find("launches_at_most", int),
        calls_within_bound=_read_flag(table, "calls_within_bound"),
        object_reads_at_most=table.find("object_reads_at_most", int),
        data_complete=table.items("data_complete", str),
        needs_failed=_read_texts(table, "needs_failed"),
        denied=table.items("denied", str),
        environment=_choose(table, "environment", ENVIRONMENTS) if table.has("environment") else None,
        environment_says=table.items("environment_says", str),
        status_says=table.items("status_says", str),
        commands=table.items("commands", str),
    )
    table.finish()
    return seen


def _read_flag(table: Table, key: str) -> Any:
    is_asked = table.get(key, bool, default=False)
    if table.has(key) and not is_asked:
        table.refuse(key, "must be true or left out: that it does not hold is never promised")
    return is_asked or None


def _read_texts(table: Table, key: str) -> dict[str, str]:
    entries = table.get(key, dict, {})
    for name, text in entries.items():
        if not isinstance(text, str):
            table.refuse(key, f"must be a table whose entries are each a text, got {name} = {text!r}")
    return dict(entries)


def _choose(table: Table, key: str, choices: tuple[str, ...]) -> Any:
    return table.choose(key, choices)
