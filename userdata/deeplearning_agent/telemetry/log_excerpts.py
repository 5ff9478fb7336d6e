"""Excerpts for the agent's log: the ends of other logs, and the progress of provisioning."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from deeplearning_agent.telemetry.log_fields import LogFields
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
from deeplearning_contract.reason import Reason
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
TAIL_BYTES = 8192
TAIL_LINES = 40
MOST_STATUS_BYTES = 1_000_000
MOST_STATE_CHARACTERS = 20
_FAILED, _RUNNING = "failed", "running"


def log_tail(node: Node, path: str) -> None:
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
        LOG.info("%s", line, extra=LogFields(details={SOURCE_FILE: path}, is_local=False).extra)


def failure_fields(stage: str, reason: Reason) -> LogFields:
    """Return the fields of a failure's log line: the line's message is the composed reason, these are its parts."""
    output = reason.output[-MOST_DETAIL_CHARACTERS:]
    found = {STEP: stage, REASON: reason.cause, REMEDY: reason.remedy, OUTPUT: output}
    return LogFields(details={name: text for name, text in found.items() if text}, is_urgent=True)


class ProvisioningWatch:
    """Logs the progress of the service that brings data and software to the node, and each of its failures, once."""

    def __init__(self, node: Node) -> None:
        """Bind the node; nothing is read yet."""
        self._node = node
        self._logged: dict[str, dict[str, str]] = {}

    def look(self) -> None:
        """Log each step that has changed; a step that is retried and fails in another way has another failure."""
        steps = self._read()
        for name, details in steps.items():
            if self._logged.get(name) == details:
                continue
            has_failed = details[STATE] == _FAILED
            fields = LogFields(details={PROVISION: name, **details}, is_urgent=has_failed, is_local=False)
            level, words = logging.INFO, f"provisioning: {name} is {details[STATE]}"
            if has_failed:
                level, words = logging.WARNING, f"provisioning failed: {name}"
            LOG.log(level, "%s: %s", words, details[DETAIL], extra=fields.extra)
        self._logged = steps

    def _read(self) -> dict[str, dict[str, str]]:
        path = self._node.path(PROVISION_FILE)  # The login user's file: it may be anything.
        try:
            if not path.is_file() or path.stat().st_size > MOST_STATUS_BYTES:
                return {}
            steps = json.loads(path.read_text(encoding="utf-8"))["steps"]
            return {str(name): _describe_step(step) for name, step in steps.items()}
        except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return {}


def _describe_step(step: Mapping[str, Any]) -> dict[str, str]:
    keys = {DETAIL: "detail", REASON: "cause", REMEDY: "remedy", OUTPUT: "output"}
    found = {name: step.get(key, "") for name, key in keys.items()}
    texts = {name: " ".join(str(text).split())[:MOST_DETAIL_CHARACTERS] for name, text in found.items()}
    state, total = str(step["state"])[:MOST_STATE_CHARACTERS], step.get("total")
    if state == _RUNNING and isinstance(total, int) and total > 0:
        state = f"{state} ({100 * int(step['done']) // total} %)"
    return {STATE: state, DETAIL: texts.pop(DETAIL), **{name: text for name, text in texts.items() if text}}
