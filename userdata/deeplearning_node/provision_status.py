"""
Provisioning status of a node: one file for all users, written while the node is provisioned.

The file belongs to one boot of one machine. An image of a node contains that node's file, and a reboot may empty a
local disk, so a file of another boot counts as none.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deeplearning_contract.document import parse_record
from deeplearning_contract.names import PROVISION_FILE
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_node.node_facts import NodeFacts

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
ENVIRONMENT_STEP = "environment"
BOOT_FILE = "/proc/sys/kernel/random/boot_id"
NOT_STARTED = "provisioning has not come to it yet"


@dataclass(frozen=True)
class Step:
    """Provisioning of one requirement of jobs."""

    state: str = WAITING  # `waiting`, `running`, `done` or `failed`
    detail: str = ""  # Present activity, or the cause of a failure with its remedy
    done: int = 0  # Completed amount
    total: int = 0  # Whole amount; 0 when it is unknown
    unit: str = ""  # Unit of both: `bytes`, `packages`, `%`, or empty
    rate: float = 0.0  # Units a second since the start of this activity; 0 when it is unknown
    final: bool = False  # Whether a failure persists until a user removes its cause
    reason: Reason = NO_REASON  # Reason of a failure; else false

    def to_document(self) -> dict[str, Any]:
        """Return the step as JSON, with the rate in whole units."""
        return {**asdict(self), "rate": round(self.rate)}


@dataclass(frozen=True)
class _StatusFile:
    boot: str
    steps: Mapping[str, Step]


def data_step(name: str) -> str:
    """Return the name of the step for one source of data."""
    return f"data:{name}"


def name_steps(needs: JobNeeds) -> list[str]:
    """Return the names of the steps for all requirements."""
    return [data_step(source.name) for source in needs.data] + ([ENVIRONMENT_STEP] if needs.environment else [])


def read_boot(root: Path) -> str:
    """Return the kernel's id of this boot; empty without one."""
    try:
        return (root / BOOT_FILE.lstrip("/")).read_text().strip()
    except OSError:
        return ""


def read_status(root: Path) -> Mapping[str, Step]:
    """
    Read the step of each requirement of the node's settings, in order; empty without requirements.

    OSError before the agent has described the node, ContractError for a malformed description.
    """
    found = load_steps(root)
    return {name: found.get(name, Step(detail=NOT_STARTED)) for name in name_steps(NodeFacts.read(root).needs)}


def is_ready(steps: Mapping[str, Step]) -> bool:
    return all(step.state == DONE for step in steps.values())


def is_settled(steps: Mapping[str, Step]) -> bool:
    """Return whether every step is done, or failed until a user acts."""
    return all(step.state == DONE or (step.state == FAILED and step.final) for step in steps.values())


def load_steps(root: Path) -> Mapping[str, Step]:
    """Return the steps written during this boot; none if the file is absent or malformed."""
    try:
        text = (root / PROVISION_FILE.lstrip("/")).read_text(encoding="utf-8")
        found = parse_record(_StatusFile, text, "provision status")
    except (OSError, ValueError):  # ContractError is a ValueError, and so is text that is not UTF-8.
        return {}
    return found.steps if found.boot == read_boot(root) else {}
