"""What went wrong beside the agent, told in its log: the ends of other logs, and how the provisioning goes."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from deeplearning_agent.telemetry.log_fields import Remark
from deeplearning_contract.log_record import (
    DETAIL,
    MOST_DETAIL_CHARACTERS,
    OUTPUT,
    PROVISION,
    REASON,
    REMEDY,
    SOURCE_FILE,
    STATE,
    STEP,
)
from deeplearning_contract.names import PROVISION_FILE
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
TAIL_BYTES = 8192
TAIL_LINES = 40
MOST_STATUS_BYTES = 1_000_000
MOST_STATE_CHARACTERS = 20
_FAILED, _RUNNING = "failed", "running"


def tell_tail(node: Node, path: str) -> None:
    """
    Ship the last lines of a file of the node, each as a line; the log on the node does not repeat them.

    A file that is absent or cannot be read has none.
    """
    try:
        with node.path(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines[-TAIL_LINES:]:
        LOG.info("%s", line, extra=Remark(details={SOURCE_FILE: path}, is_for_people=False).extra)


def remark_failure(failure: StageFailure) -> Remark:
    """Return what a failure says to those who read the shipped line; a program's last output is part of it."""
    output = failure.output[-MOST_DETAIL_CHARACTERS:]
    found = {STEP: failure.stage, REASON: failure.cause, REMEDY: failure.remedy, OUTPUT: output}
    return Remark(details={name: text for name, text in found.items() if text}, is_urgent=True)


class ProvisioningWatch:
    """Tells how far the service is that brings data and software to the node, and each of its failures, once."""

    def __init__(self, node: Node) -> None:
        """Bind the node; nothing is read yet."""
        self._node = node
        self._told: dict[str, tuple[str, str]] = {}

    def look(self) -> None:
        """Tell what is news; a step that is tried again and fails in another way has another failure."""
        steps = self._read()
        for name, (state, detail) in steps.items():
            if self._told.get(name) == (state, detail):
                continue
            details = {PROVISION: name, STATE: state, DETAIL: detail}
            if state == _FAILED:
                remark = Remark(details=details, is_urgent=True, is_for_people=False)
                LOG.warning("provisioning failed: %s: %s", name, detail, extra=remark.extra)
            else:
                remark = Remark(details=details, is_for_people=False)
                LOG.info("provisioning: %s is %s: %s", name, state, detail, extra=remark.extra)
        self._told = steps

    def _read(self) -> dict[str, tuple[str, str]]:
        path = self._node.path(PROVISION_FILE)  # The login user's file: it may be anything.
        try:
            if not path.is_file() or path.stat().st_size > MOST_STATUS_BYTES:
                return {}
            steps = json.loads(path.read_text(encoding="utf-8"))["steps"]
            return {str(name): (_describe_state(step), _describe_detail(step)) for name, step in steps.items()}
        except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return {}


def _describe_state(step: Mapping[str, Any]) -> str:
    state, total = str(step["state"])[:MOST_STATE_CHARACTERS], step.get("total")
    if state != _RUNNING or not isinstance(total, int) or total <= 0:
        return state
    return f"{state} ({100 * int(step['done']) // total} %)"


def _describe_detail(step: Mapping[str, Any]) -> str:
    return " ".join(str(step.get("detail", "")).split())[:MOST_DETAIL_CHARACTERS]
