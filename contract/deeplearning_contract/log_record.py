"""
The log line of nodes and Lambda in CloudWatch Logs: one JSON object, the same fields whoever writes it.

What a record says besides, such as `step` and `seconds`, or a metric, lies beside these fields.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from deeplearning_contract.document import ContractError, parse_object
from deeplearning_contract.document import field as take

FIELDS = ("time", "level", "cluster", "generation", "node", "role", "logger", "message")
"""What every line has, in this order."""
ADJUSTER = "adjuster"
"""Node and role of the capacity adjuster's lines."""
MOST_LINE_BYTES = 256 * 1024 - 26
"""CloudWatch Logs' limit on an event, which counts 26 bytes for itself."""
MOST_MESSAGE_CHARACTERS = 16_000
"""A character takes at most twelve bytes of JSON, so that this fits whatever it is."""
MOST_DETAIL_CHARACTERS = 2_000
STEP = "step"
SECONDS = "seconds"
REASON = "reason"
REMEDY = "remedy"
OUTPUT = "output"
TRACEBACK = "traceback"
SOURCE_FILE = "source_file"
"""
Details: what was done, how long it took, why it failed, what to do, the ends of a program's output and of an error's
traceback, and the file of this line.
"""

PROVIDER = "provider"
"""Detail: by what NCCL's traffic leaves the node, `efa` or `tcp`, and why; a warning where EFA was meant."""

PROVISION = "provision"
STATE = "state"
DETAIL = "detail"
"""
Details: what jobs need that is brought to the node, such as `environment` or `data:NAME`; how far that is, such as
`running (42 %)` or `failed`; and what happens, or the cause of a failure with its remedy.
"""


@dataclass(frozen=True)
class Speaker:
    """Writer of log lines."""

    cluster: str
    node: str  # Instance id, or `adjuster`
    role: str  # `master`, `worker` or `adjuster`

    @property
    def stream(self) -> str:
        """The node's stream in the cluster's log group; a role may write below its own name only."""
        return f"{self.role}/{self.node}"


@dataclass(frozen=True)
class LogLine:
    """One line."""

    time: float  # When it was said, seconds since the epoch
    level: str  # `INFO`, `WARNING`, `ERROR` and so on
    speaker: Speaker  # Who said it
    generation: int  # The generation that the speaker knew; 0 before the first
    logger: str  # The part of the program that said it
    message: str  # What was said
    details: Mapping[str, Any] = field(default_factory=dict)  # What it says besides

    def to_text(self) -> str:
        """Return the line: ASCII without line breaks, whatever was said, and no longer than CloudWatch takes."""
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
    """Return a time since the epoch in UTC, with whole milliseconds; what was read back gives the same text."""
    # By way of microseconds, which a float of these years holds: 0.406 s is often a little less.
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
    """Return what JSON can say: other values as text, and no number that is none."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)[:MOST_DETAIL_CHARACTERS]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return _shorten(str(value), MOST_DETAIL_CHARACTERS)
