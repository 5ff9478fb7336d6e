"""Log lines of nodes and adjuster, as CloudWatch Logs returns them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from deeplearning_contract.document import ContractError, read_record
from deeplearning_contract.log_record import (
    ADJUSTER,
    DETAIL,
    PROVIDER,
    PROVISION,
    REASON,
    STATE,
    STEP,
    LogLine,
)
from deeplearning_contract.reason import NO_REASON, Reason

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
PLATFORM = "platform"
"""Logger of Lambda's own lines about an invocation."""
_PLATFORM_WORDS = ("START RequestId", "END RequestId", "REPORT RequestId", "INIT_START", "XRAY TraceId")


@dataclass(frozen=True)
class Line:
    """
    Log line; fields that it lacks are empty.

    Attributes:
        at: Time of the line, UTC.
        node: Instance id, or `adjuster`.
        role: `master`, `worker` or `adjuster`.
        level: One of `LEVELS`.
        logger: Part of the program that logged it.
        step: Setup step of the line.
        reason: Reason of a failure; false without one.
        provision: Data or software of jobs that the line reports.
        state: State of that; `failed` after a failure.
        detail: Progress, or cause of the failure.
        provider: Network provider of NCCL's traffic, and the reason.
        raw: The unchanged line.
    """

    at: datetime
    node: str
    role: str
    level: str
    logger: str
    message: str
    step: str = ""
    reason: Reason = NO_REASON
    provider: str = ""
    provision: str = ""
    state: str = ""
    detail: str = ""
    raw: str = ""


def read_lines(events: Iterable[Mapping[str, Any]]) -> tuple[Line, ...]:
    """Return events of `FilterLogEvents` as lines, oldest first, without lines that contain only metrics."""
    lines = [read_line(event) for event in events]
    return tuple(sorted((line for line in lines if line.message), key=lambda line: line.at))


def read_line(event: Mapping[str, Any]) -> Line:
    """Return an event as a line; text of other programs, such as Lambda or a traceback, stays unchanged."""
    text, stream = str(event["message"]).rstrip("\n"), str(event.get("logStreamName", ""))
    role, _, node = stream.partition("/") if stream.startswith(("master/", "worker/")) else (ADJUSTER, "", ADJUSTER)
    try:
        line = LogLine.from_text(text)
    except ContractError:
        at = datetime.fromtimestamp(event["timestamp"] / 1000, timezone.utc)
        return Line(at, node, role, *_read_foreign(text), raw=text)
    details = line.details
    return Line(
        datetime.fromtimestamp(line.time, timezone.utc),
        node,  # from the stream, to which a node's permissions limit it; a line may contain anything
        role,
        line.level if line.level in LEVELS else "INFO",
        line.logger,
        clean(line.message),
        step=_take(details, STEP),
        reason=_read_reason(details),
        provider=_take(details, PROVIDER),
        provision=_take(details, PROVISION),
        state=_take(details, STATE),
        detail=_take(details, DETAIL),
        raw=text,
    )


def clean(text: str) -> str:
    """Return a text as one line without control characters: nodes may log anything."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def clean_reason(reason: Reason) -> Reason:
    """Return a reason with its texts in one line each and without control characters, and its output in its lines."""
    return Reason(clean(reason.cause), clean(reason.remedy), "\n".join(map(clean, reason.output.splitlines())))


def _take(details: Mapping[str, Any], name: str) -> str:
    value = details.get(name, "")
    return clean(value) if isinstance(value, str) else ""


def _read_reason(details: Mapping[str, Any]) -> Reason:
    try:
        return clean_reason(read_record(Reason, details.get(REASON, {}), REASON))
    except ContractError:
        return NO_REASON


def _read_foreign(text: str) -> tuple[str, str, str]:
    """Return level, logger and message of a foreign line: Lambda's own JSON or text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and "message" in document:
        level = str(document.get("level", "INFO")).upper()
        return (
            level if level in LEVELS else "INFO",
            str(document.get("logger", PLATFORM)),
            clean(str(document["message"])),
        )
    is_platform = isinstance(document, dict) or text.startswith(_PLATFORM_WORDS)
    is_problem = text.startswith(("[ERROR]", "Traceback")) or "Task timed out" in text
    return "ERROR" if is_problem else "DEBUG" if is_platform else "INFO", PLATFORM, clean(text)
