"""Log records: the fields of the shipped line, and the bounded queue of lines, into which logging never blocks."""

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeplearning_contract.cluster_event import ClusterEvent
from deeplearning_contract.log_record import MOST_DETAIL_CHARACTERS, TRACEBACK, LogLine, Speaker
from deeplearning_contract.metrics import CLUSTER, NODE, PHASE, Metric, embed_metrics

MOST_LINES = 10_000
MOST_BYTES = 4 * 1024 * 1024
MOST_EVENTS = 20
EVENT_BYTES = 26
"""Bytes that CloudWatch Logs counts for an event in addition to its text."""
BATCH_LINES = 9_999
BATCH_BYTES = 1_048_576 - 4096
BATCH_SECONDS = 23 * 3600
"""Below the limits of `PutLogEvents`: 10,000 events, 1 MiB, a day; a notice of dropped lines is added to these."""
_FORMATTER = logging.Formatter()
_ATTRIBUTE = "fields"


@dataclass(frozen=True)
class LogFields:
    """Fields of a log record beside its message, for the shipped line."""

    details: Mapping[str, Any] = field(default_factory=dict)  # Fields of the shipped line, such as `step` and `seconds`
    metrics: Mapping[Metric, float] = field(default_factory=dict)  # Measured values
    phase: str = ""  # Phase of a metric of the formation
    event: ClusterEvent | None = None  # Event to publish on the account's bus
    generation: int | None = None  # New generation of the node; None when it does not change
    is_urgent: bool = False  # Whether the line is shipped at once
    is_local: bool = True  # Whether the line also goes to the log on the node

    @property
    def extra(self) -> dict[str, "LogFields"]:
        """The fields as `extra` of a logger's call."""
        return {_ATTRIBUTE: self}


NOTHING = LogFields()


def read_fields(record: logging.LogRecord) -> LogFields:
    """Return the fields of a record; empty ones when it has none."""
    found = getattr(record, _ATTRIBUTE, NOTHING)
    return found if isinstance(found, LogFields) else NOTHING


def is_local(record: logging.LogRecord) -> bool:
    """Return whether a record goes to the log on the node; a filter of handlers."""
    return read_fields(record).is_local


def start_log(path: Path) -> None:
    """Log to the journal, through standard output, and to a file for users; both in UTC."""
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.Formatter.converter = time.gmtime
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout), logging.FileHandler(path)]
    for handler in handlers:
        handler.addFilter(is_local)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%SZ",
        handlers=handlers,
    )
    logging.getLogger("botocore").setLevel(logging.WARNING)


@dataclass(frozen=True)
class QueuedLine:
    """Log line with its time in seconds since the epoch."""

    at: float
    text: str

    @property
    def size(self) -> int:
        """Size in bytes, as CloudWatch Logs counts it; the text is ASCII."""
        return len(self.text) + EVENT_BYTES


class LogQueue(logging.Handler):
    """
    Log handler that queues lines and events for shipping.

    When the queue is full, the oldest lines are dropped and counted.
    """

    def __init__(self, speaker: Speaker, generation: int = 0) -> None:
        super().__init__()
        self.speaker = speaker
        self.generation = generation
        """Generation of the node."""
        self.has_urgent = threading.Event()
        self._guard = threading.RLock()  # A signal may interrupt the main thread while it logs a line.
        self._lines: deque[QueuedLine] = deque()
        self._bytes = 0
        self._dropped = 0
        self._events: deque[ClusterEvent] = deque(maxlen=MOST_EVENTS)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; raises nothing."""
        try:
            fields = read_fields(record)
            if fields.generation is not None:
                self.generation = fields.generation
            line = QueuedLine(record.created, self._write(record, fields))
            with self._guard:
                if fields.event is not None:
                    self._events.append(fields.event)
                self._lines.append(line)
                self._bytes += line.size
                self._trim()
            if fields.is_urgent or record.levelno >= logging.ERROR:
                self.has_urgent.set()
        except Exception:  # noqa: BLE001 - a log line must not end the work that it reports
            self.handleError(record)

    @property
    def has_lines(self) -> bool:
        return bool(self._lines)

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def take(self) -> tuple[list[QueuedLine], int]:
        """Take the oldest lines that fit into one call, in the order of their times, and the number dropped before."""
        taken: list[QueuedLine] = []
        room, first, last = BATCH_BYTES, float("inf"), float("-inf")
        with self._guard:
            while self._lines and len(taken) < BATCH_LINES:
                line = self._lines[0]
                first, last = min(first, line.at), max(last, line.at)
                if line.size > room or last - first > BATCH_SECONDS:
                    break
                room -= line.size
                self._bytes -= line.size
                taken.append(self._lines.popleft())
            dropped, self._dropped = self._dropped, 0
        return sorted(taken, key=lambda line: line.at), dropped

    def restore(self, lines: Sequence[QueuedLine], dropped: int) -> None:
        """Put lines back that could not be shipped, in front of newer ones."""
        with self._guard:
            self._dropped += dropped
            self._lines.extendleft(reversed(lines))
            self._bytes += sum(line.size for line in lines)
            self._trim()

    def count_dropped(self, number: int) -> None:
        """Count lines that were dropped."""
        with self._guard:
            self._dropped += number

    def take_events(self) -> list[ClusterEvent]:
        with self._guard:
            events = list(self._events)
            self._events.clear()
        return events

    def restore_events(self, events: Sequence[ClusterEvent]) -> None:
        """Put events back that could not be sent; when there are too many, the oldest are dropped."""
        with self._guard:
            merged = [*events, *self._events][-MOST_EVENTS:]
            self._events.clear()
            self._events.extend(merged)

    def _trim(self) -> None:
        while len(self._lines) > MOST_LINES or self._bytes > MOST_BYTES:
            self._bytes -= self._lines.popleft().size
            self._dropped += 1

    def _write(self, record: logging.LogRecord, fields: LogFields) -> str:
        details = dict(fields.details)
        if record.exc_info:
            details[TRACEBACK] = _FORMATTER.formatException(record.exc_info)[-MOST_DETAIL_CHARACTERS:]
        dimensions = {CLUSTER: self.speaker.cluster, NODE: self.speaker.node, PHASE: fields.phase}
        metrics = embed_metrics(fields.metrics, dimensions, record.created)
        return LogLine(
            time=record.created,
            level=record.levelname,
            speaker=self.speaker,
            generation=self.generation,
            logger=record.name,
            message=record.getMessage(),
            details={**details, **metrics},
        ).to_text()
