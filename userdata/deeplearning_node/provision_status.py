"""
Provisioning status of a node: one file that everybody may read, written while the node is provisioned.

The file belongs to one boot of one machine. An image that was made from a node carries that node's file, and a reboot
may empty a local disk, so a file of another boot counts as none.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deeplearning_contract.document import parse_record
from deeplearning_contract.names import PROVISION_FILE
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_node.node_facts import NodeFacts

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
ENVIRONMENT_STEP = "environment"
BOOT_FILE = "/proc/sys/kernel/random/boot_id"
NOT_STARTED = "provisioning has not come to it yet"


@dataclass(frozen=True)
class Step:
    """One thing that jobs need."""

    state: str = WAITING  # `waiting`, `running`, `done` or `failed`
    detail: str = ""  # Present activity, or the cause of a failure with its remedy
    done: int = 0  # How much of it is done
    total: int = 0  # How much there is; 0 when that is not known
    unit: str = ""  # Of what: `bytes`, `packages`, `%`, or empty
    rate: float = 0.0  # Units a second since this part of it began; 0 when it is not known
    final: bool = False  # Whether a failure stays one until somebody mends its cause
    cause: str = ""  # Cause of a failure
    remedy: str = ""
    output: str = ""  # The end of a program's output that belongs to the failure

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON, with the rate in whole units."""
        return {**asdict(self), "rate": round(self.rate)}


@dataclass(frozen=True)
class _StatusFile:
    boot: str
    steps: Mapping[str, Step]


def data_step(name: str) -> str:
    """Return the name of the step that brings one source of data."""
    return f"data:{name}"


def name_steps(needs: JobNeeds) -> list[str]:
    """Return the names of all steps that needs make."""
    return [data_step(source.name) for source in needs.data] + ([ENVIRONMENT_STEP] if needs.environment else [])


def read_boot(root: Path) -> str:
    """Return what the kernel calls this boot; empty where it does not say."""
    try:
        return (root / BOOT_FILE.lstrip("/")).read_text().strip()
    except OSError:
        return ""


def read_status(root: Path) -> Mapping[str, Step]:
    """
    Read the step of each thing that the node's settings ask for, in their order; empty when they ask for nothing.

    OSError before the agent has described the node, ContractError for a malformed description.
    """
    found = load_steps(root)
    return {name: found.get(name, Step(detail=NOT_STARTED)) for name in name_steps(NodeFacts.read(root).needs)}


def is_ready(steps: Mapping[str, Step]) -> bool:
    return all(step.state == DONE for step in steps.values())


def is_settled(steps: Mapping[str, Step]) -> bool:
    """Return whether nothing will change without somebody's help."""
    return all(step.state == DONE or (step.state == FAILED and step.final) for step in steps.values())


def load_steps(root: Path) -> Mapping[str, Step]:
    """Return the steps written in this boot; none where the file is absent or malformed."""
    try:
        text = (root / PROVISION_FILE.lstrip("/")).read_text(encoding="utf-8")
        found = parse_record(_StatusFile, text, "provision status")
    except (OSError, ValueError):  # ContractError is a ValueError, and so is text that is not UTF-8.
        return {}
    return found.steps if found.boot == read_boot(root) else {}
