"""Observations for the expectations of a case: data and environment, `deeplearning-cdk status`, shell lines."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cdk_rehearsal.errors import RehearsalError
from deeplearning_contract.names import DATA_DIRECTORY, PROVISION_FILE
from deeplearning_rehearsal.cases.format.account import DIGEST_COMMAND, DataObject, digest_tree
from deeplearning_rehearsal.cases.format.case import Case
from deeplearning_rehearsal.cases.format.expectations import ABSENT, NodeObservations, join_lines
from deeplearning_rehearsal.checks.contract_check import Nodes
from deeplearning_rehearsal.checks.training import last_lines

_INTERVAL_SECONDS = 0.5
_DIGEST_SECONDS = 120.0
_STATUS_SECONDS = 120.0
"""Agents look for troubles of their node once a minute, and ship what they say every ten seconds."""
_COMMAND_SECONDS = 120.0


class NodesWithDisks(Nodes, Protocol):
    """The part of the lab that is used here."""

    def disk(self, instance_id: str) -> Path:
        """Return the folder under which a machine's files can be read."""


def list_sources(case: Case) -> Mapping[str, DataObject]:
    """Return the sources of data in the case's context by name, with the object that each brings."""
    entries = case.context.get("storage.data", "[]")
    document = json.loads(entries) if isinstance(entries, str) else entries
    objects = {(item.bucket, item.key): item for item in case.objects}
    found = ((entry["name"], objects.get((entry["bucket"], entry.get("key", "")))) for entry in document)
    return {name: item for name, item in found if item is not None}


def await_needs(case: Case, nodes: NodesWithDisks, ids: Sequence[str], give_up: float) -> None:
    """Wait until every step that must end well has, on all nodes, and every other has failed on one; a time at most."""
    while time.monotonic() < give_up:
        observations = NodeObservations({node: _read_steps(nodes, node) for node in ids})
        done = all(
            steps.get(f"data:{name}", {}).get("state") == "done"
            for name in case.seen.data_complete
            for steps in observations.steps.values()
        )
        if done and all(observations.find_failure(step) for step in case.seen.needs_failed):
            return
        time.sleep(_INTERVAL_SECONDS)


def look_at_needs(case: Case, nodes: NodesWithDisks, ids: Sequence[str], user: str) -> NodeObservations:
    """Return what is in place on each node, as the login user sees it."""
    sources = list_sources(case)
    failed = (step.partition("data:")[2] for step in case.seen.needs_failed)
    names = [*case.seen.data_complete, *(name for name in failed if name)]
    return NodeObservations(
        steps={node: _read_steps(nodes, node) for node in ids},
        trees={name: {node: _digest(nodes, node, user, name) for node in ids} for name in names},
        expected={name: digest_tree(sources[name].make_tree()) for name in names if name in sources},
    )


def await_status(ask: Callable[[], str], texts: Iterable[str], seconds: float = _STATUS_SECONDS) -> str:
    """Fetch the page until it has all of the texts, for so many seconds at most, and return the last one."""
    needed = tuple(texts)
    give_up = time.monotonic() + seconds
    while True:
        page = ask()
        words = join_lines(page)
        if all(text in words for text in needed) or time.monotonic() > give_up:
            return page
        time.sleep(min(_INTERVAL_SECONDS, seconds))


def run_commands(nodes: Nodes, master: str, user: str, lines: Iterable[str]) -> Mapping[str, str]:
    """Run each shell line on the master in a login shell; return line -> why it did not succeed, empty where it did."""
    found = {}
    for line in lines:
        answer = nodes.run(master, ["bash", "-c", line], user=user, login_shell=True, timeout=_COMMAND_SECONDS)
        said = last_lines(answer.stdout + answer.stderr)
        found[line] = f"status {answer.returncode}: {said}" if answer.returncode else ""
    return found


def _digest(nodes: Nodes, node: str, user: str, name: str) -> str:
    folder = f"{DATA_DIRECTORY}/{name}"
    line = f'cd {folder} 2>/dev/null && [ -n "$(find . -type f | head -n 1)" ] && {DIGEST_COMMAND}'
    answer = nodes.run(node, ["bash", "-c", line], user=user, timeout=_DIGEST_SECONDS)
    return answer.stdout.strip() if answer.returncode == 0 else ABSENT


def _read_steps(nodes: NodesWithDisks, node: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        text = (nodes.disk(node) / PROVISION_FILE.lstrip("/")).read_text(encoding="utf-8")
        steps: Mapping[str, Mapping[str, Any]] = json.loads(text)["steps"]
    except (OSError, ValueError, KeyError, RehearsalError):
        return {}  # it has not begun, or is off
    return steps
