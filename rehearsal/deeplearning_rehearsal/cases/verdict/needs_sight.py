"""What was seen of the data and the environment that jobs need, and what a case expects of them."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cdk_rehearsal.errors import RehearsalError
from deeplearning_contract.names import DATA_DIRECTORY, PROVISION_FILE
from deeplearning_rehearsal.cases.format.account import DIGEST_COMMAND, DataObject, digest_tree
from deeplearning_rehearsal.cases.format.case import Case
from deeplearning_rehearsal.cases.format.expectations import ABSENT, NeedsSight
from deeplearning_rehearsal.checks.contract_check import Nodes

_INTERVAL_SECONDS = 0.5
_DIGEST_SECONDS = 120.0


class NodesWithDisks(Nodes, Protocol):
    """What is needed of the lab."""

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
        sight = NeedsSight({node: _read_steps(nodes, node) for node in ids})
        done = all(
            steps.get(f"data:{name}", {}).get("state") == "done"
            for name in case.seen.data_complete
            for steps in sight.steps.values()
        )
        if done and all(sight.find_failure(step) for step in case.seen.needs_failed):
            return
        time.sleep(_INTERVAL_SECONDS)


def look_at_needs(case: Case, nodes: NodesWithDisks, ids: Sequence[str], user: str) -> NeedsSight:
    """
    Look at what is in place on each node, as the login user sees it.

    Args:
        case: The case.
        nodes: The lab.
        ids: Instance ids of the nodes.
        user: The login user.
    """
    sources = list_sources(case)
    failed = (step.partition("data:")[2] for step in case.seen.needs_failed)
    names = [*case.seen.data_complete, *(name for name in failed if name)]
    return NeedsSight(
        steps={node: _read_steps(nodes, node) for node in ids},
        trees={name: {node: _digest(nodes, node, user, name) for node in ids} for name in names},
        expected={name: digest_tree(sources[name].make_tree()) for name in names if name in sources},
    )


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
