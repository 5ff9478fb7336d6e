"""
Log line of nodes and Lambda functions in CloudWatch Logs: one JSON object with the same fields for every writer.

Details of a record, such as `step` and `seconds`, or a metric, are further keys of the object.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from deeplearning_contract.document import ContractError, parse_object
from deeplearning_contract.document import field as take
from deeplearning_contract.reason import Reason

FIELDS = ("time", "level", "cluster", "generation", "node", "role", "logger", "message")
"""Fields of every line, in this order."""
ADJUSTER = "adjuster"
"""Node and role of the capacity adjuster's lines."""
MOST_LINE_BYTES = 256 * 1024 - 26
"""Limit of CloudWatch Logs for an event, which counts 26 bytes in addition."""
MOST_MESSAGE_CHARACTERS = 16_000
"""Most characters of a message; each takes at most twelve bytes of JSON, so any text fits."""
MOST_DETAIL_CHARACTERS = 2_000
STEP = "step"
SECONDS = "seconds"
REASON = "reason"
OUTPUT = "output"
TRACEBACK = "traceback"
SOURCE_FILE = "source_file"
"""
Details: step, duration, reason of a failure (an object of its parts), the ends of the output of a program that is no
failure's and of an error's traceback, and the file of this line.
"""

PROVIDER = "provider"
"""Detail: network provider of NCCL, `efa` or `tcp`, with the reason; a warning if EFA was configured."""

PROVISION = "provision"
STATE = "state"
DETAIL = "detail"
"""
Details: step of the provisioning, such as `environment` or `data:NAME`; its state, such as `running (42 %)` or
`failed`; and the current activity, or the cause of a failure with its remedy.
"""


@dataclass(frozen=True)
class Speaker:
    """Writer of log lines."""

    cluster: str
    node: str  # Instance id, or `adjuster`
    role: str  # `master`, `worker` or `adjuster`

    @property
    def stream(self) -> str:
        """Stream of the node in the cluster's log group; a role may write only below its own name."""
        return f"{self.role}/{self.node}"


@dataclass(frozen=True)
class LogLine:
    """Log line."""

    time: float  # Seconds since the epoch
    level: str  # `INFO`, `WARNING`, `ERROR` and so on
    speaker: Speaker  # Writer of the line
    generation: int  # Generation of the writer; 0 before the first
    logger: str  # Part of the program
    message: str  # Text
    details: Mapping[str, Any] = field(default_factory=dict)  # Further fields

    def to_text(self) -> str:
        """Return the line: ASCII without line breaks, within CloudWatch's limit."""
        document = {
            "time": format_time(self.time),
            "level": self.level,
            "cluster": self.speaker.cluster,
            "generation": self.generation,
            "node": self.speaker.node,
            "role": self.speaker.role,
            "logger": self.logger,
            "message": _shorten(self.message, MOST_MESSAGE_CHARACTERS),
        }
        details = {str(name): _plain(value) for name, value in self.details.items() if name not in FIELDS}
        text = json.dumps(document | details)
        return text if len(text) <= MOST_LINE_BYTES else json.dumps(document)

    @classmethod
    def from_text(cls, text: str) -> "LogLine":
        """Read a line that `to_text` wrote; ContractError for any other text."""
        document = parse_object(text, "line")
        texts = {name: take(document, name, str, "line") for name in FIELDS if name != "generation"}
        return cls(
            time=_read_time(texts["time"]),
            level=texts["level"],
            speaker=Speaker(texts["cluster"], texts["node"], texts["role"]),
            generation=take(document, "generation", int, "line"),
            logger=texts["logger"],
            message=texts["message"],
            details={name: value for name, value in document.items() if name not in FIELDS},
        )


def format_time(seconds: float) -> str:
    """Return a time since the epoch in UTC, with whole milliseconds; parsing and formatting it gives the same text."""
    # Through microseconds, which a float of these years can represent: 0.406 s is often a little less.
    whole, milliseconds = divmod(round(seconds * 1_000_000) // 1000, 1000)
    return f"{datetime.fromtimestamp(whole, timezone.utc):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def _read_time(text: str) -> float:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError as error:
        raise ContractError(f"line.time must be UTC with milliseconds: {error}") from error


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent: others as text, and no NaN or infinity."""
    if isinstance(value, Reason):
        return {name: text for name, text in asdict(value.shorten(MOST_DETAIL_CHARACTERS)).items() if text}
    if isinstance(value, bool) or value is None or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return _shorten(str(value), MOST_DETAIL_CHARACTERS)
