"""What a log record says beside its words, for those who read the shipped line."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deeplearning_contract.cluster_event import ClusterEvent
from deeplearning_contract.metrics import Metric

_ATTRIBUTE = "remark"


@dataclass(frozen=True)
class Remark:
    """
    A record's remark.

    Attributes:
        details: Fields of the shipped line, such as `step` and `seconds`.
        metrics: What was measured.
        phase: The phase that a metric of formation is about.
        event: The event that the account's bus is told; None for none.
        generation: The generation that the node has come to know; None when it is no news.
        is_urgent: Whether the line is shipped at once.
        is_for_people: Whether the line belongs into the log that people read on the node.
    """

    details: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[Metric, float] = field(default_factory=dict)
    phase: str = ""
    event: ClusterEvent | None = None
    generation: int | None = None
    is_urgent: bool = False
    is_for_people: bool = True

    @property
    def extra(self) -> dict[str, "Remark"]:
        """The remark as the calls of a logger take it."""
        return {_ATTRIBUTE: self}


NOTHING = Remark()


def read_remark(record: logging.LogRecord) -> Remark:
    """Return the remark of a record; one that says nothing when it has none."""
    found = getattr(record, _ATTRIBUTE, NOTHING)
    return found if isinstance(found, Remark) else NOTHING


def is_for_people(record: logging.LogRecord) -> bool:
    """Tell whether a record belongs into the log that people read on the node; a filter of handlers."""
    return read_remark(record).is_for_people
