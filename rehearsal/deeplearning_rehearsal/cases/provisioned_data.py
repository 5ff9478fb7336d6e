"""Data and environments that jobs need, as the nodes of a case have them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cdk_rehearsal.errors import RehearsalError
from deeplearning_contract.names import DATA_DIRECTORY, PROVISION_FILE
from deeplearning_rehearsal.cases.account import DIGEST_COMMAND, DataObject, digest_tree
from deeplearning_rehearsal.cases.case import Case

if TYPE_CHECKING:
    from cdk_rehearsal.lab import Lab
    from cdk_rehearsal.run.fleet import Fleet

Steps = Mapping[str, Mapping[str, Any]]
"""Step of provisioning -> its entry in a node's file."""
ABSENT = "absent"
"""In place of a digest, where nothing is in place."""
_DIGEST_SECONDS = 120.0


class Disks(Protocol):
    """The part of the lab that is used here."""

    def disk(self, instance_id: str) -> Path:
        """Return the folder under which a machine's files can be read."""


def list_sources(case: Case) -> Mapping[str, DataObject]:
    """Return the sources of data in the case's context by name, with the object that each brings."""
    entries = case.context.get("storage.data", [])
    objects = {(item.bucket, item.key): item for item in case.objects}
    found = ((entry["name"], objects.get((entry["bucket"], entry.get("key", "")))) for entry in entries)
    return {name: item for name, item in found if item is not None}


def read_steps(disks: Disks, node: str) -> Steps:
    """Return the steps of a node; none before it has begun, or while it is off."""
    try:
        text = (disks.disk(node) / PROVISION_FILE.lstrip("/")).read_text(encoding="utf-8")
        steps: Steps = json.loads(text)["steps"]
    except (OSError, ValueError, KeyError, RehearsalError):
        return {}
    return steps


def has_provisioned(nodes: Iterable[Steps], done: Sequence[str], failed: str = "") -> bool:
    """Return whether every node has done all steps, and one has failed the step `failed` if one is given."""
    found = tuple(nodes)
    is_done = all(steps.get(name, {}).get("state") == "done" for name in done for steps in found)
    return is_done and (not failed or bool(find_failure(found, failed)))


def find_failure(nodes: Iterable[Steps], step: str) -> str:
    """Return what a node says of a step that failed for good; empty where none did."""
    failed = (steps.get(step, {}) for steps in nodes)
    return next((str(s.get("detail")) for s in failed if s.get("state") == "failed" and s.get("final")), "")


def find_incomplete(case: Case, lab: "Lab", fleet: "Fleet", user: str, source: str) -> Mapping[str, str]:
    """Return node -> digest of a source's files, as the login user sees them, of the nodes without those of S3."""
    wanted = digest_tree(list_sources(case)[source].make_tree())
    folder = f"{DATA_DIRECTORY}/{source}"
    line = f'cd {folder} 2>/dev/null && [ -n "$(find . -type f | head -n 1)" ] && {DIGEST_COMMAND}'
    found = {}
    for machine in fleet.machines():
        answer = lab.run(machine.instance_id, ["bash", "-c", line], user=user, timeout=_DIGEST_SECONDS)
        found[machine.instance_id] = answer.stdout.strip() if answer.returncode == 0 else ABSENT
    return {node: digest for node, digest in found.items() if digest != wanted} if found else {"any node": ABSENT}
