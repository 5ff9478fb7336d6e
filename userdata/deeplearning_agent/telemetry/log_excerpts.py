"""Excerpts for the agent's log: the tails of other logs, and the progress of provisioning."""

import logging
from collections.abc import Mapping
from typing import Any

from deeplearning_agent.telemetry.log_records import LogFields
from deeplearning_contract.log_record import (
    DETAIL,
    MOST_DETAIL_CHARACTERS,
    PROVISION,
    REASON,
    SOURCE_FILE,
    STATE,
    STEP,
)
from deeplearning_contract.names import PROVISION_FILE
from deeplearning_contract.reason import Reason
from deeplearning_node.node import Node
from deeplearning_node.provision_status import FAILED, RUNNING, Step, load_steps

LOG = logging.getLogger(__name__)
TAIL_BYTES = 8192
TAIL_LINES = 40
MOST_STATUS_BYTES = 1_000_000


def log_tail(node: Node, path: str) -> None:
    """
    Ship the last lines of a file of the node, each as a line, but do not repeat them in the log on the node.

    A file that is absent or cannot be read counts as empty.
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
    """Return the fields of a failure's log line, whose message is the composed reason."""
    return LogFields(details={STEP: stage, REASON: reason}, is_urgent=True)


def log_provisioning(node: Node, known: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """
    Log each step of provisioning that differs from the known ones, and return the steps; a failure is a warning.

    A retried step that fails with another cause is logged again.
    """
    path = node.path(PROVISION_FILE)  # The login user owns it, so it may be a pipe, or of any size.
    is_readable = path.is_file() and path.stat().st_size <= MOST_STATUS_BYTES
    steps = {name: _describe_step(step) for name, step in load_steps(node.root).items()} if is_readable else {}
    for name, details in steps.items():
        if known.get(name) == details:
            continue
        has_failed = details[STATE] == FAILED
        fields = LogFields(details={PROVISION: name, **details}, is_urgent=has_failed, is_local=False)
        level, words = logging.INFO, f"provisioning: {name} is {details[STATE]}"
        if has_failed:
            level, words = logging.WARNING, f"provisioning failed: {name}"
        LOG.log(level, "%s: %s", words, details[DETAIL], extra=fields.extra)
    return steps


def _describe_step(step: Step) -> dict[str, Any]:
    is_counted = step.state == RUNNING and step.total > 0
    state = f"{RUNNING} ({100 * step.done // step.total} %)" if is_counted else step.state
    texts = {
        name: " ".join(text.split())[:MOST_DETAIL_CHARACTERS] for name, text in ((STATE, state), (DETAIL, step.detail))
    }
    return {**texts, REASON: step.reason} if step.reason else texts
