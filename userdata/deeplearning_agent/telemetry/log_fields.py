"""What a log record says beside its words, for those who read the shipped line."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deeplearning_contract.cluster_event import ClusterEvent
from deeplearning_contract.metrics import Metric

_ATTRIBUTE = "fields"


@dataclass(frozen=True)
class LogFields:
    """A record's fields."""

    details: Mapping[str, Any] = field(default_factory=dict)  # Fields of the shipped line, such as `step` and `seconds`
    metrics: Mapping[Metric, float] = field(default_factory=dict)  # What was measured
    phase: str = ""  # The phase that a metric of formation is about
    event: ClusterEvent | None = None  # The event that the account's bus is told; None for none
    generation: int | None = None  # The generation that the node has come to know; None when it is no news
    is_urgent: bool = False  # Whether the line is shipped at once
    is_local: bool = True  # Whether the line belongs into the log that people read on the node

    @property
    def extra(self) -> dict[str, "LogFields"]:
        """The fields as the calls of a logger take it."""
        return {_ATTRIBUTE: self}


NOTHING = LogFields()


def read_remark(record: logging.LogRecord) -> LogFields:
    """Return the fields of a record; one that says nothing when it has none."""
    found = getattr(record, _ATTRIBUTE, NOTHING)
    return found if isinstance(found, LogFields) else NOTHING


def is_local(record: logging.LogRecord) -> bool:
    """Return whether a record belongs into the log that people read on the node; a filter of handlers."""
    return read_remark(record).is_local
