"""What a stack says of itself: its events, its resources, and how it stands."""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone


@dataclass(frozen=True)
class StackEvent:
    """An event of a stack; `at` is monotonic time in seconds, `reason` empty without one."""

    logical_id: str
    physical_id: str
    resource_type: str
    status: str
    reason: str
    at: float = field(default_factory=time.monotonic)
    timestamp: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    event_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(frozen=True)
class StackResource:
    """A resource of a stack and its state."""

    logical_id: str
    physical_id: str
    resource_type: str
    status: str
    reason: str


@dataclass(frozen=True)
class StackOutcome:
    """
    How a stack stands, or ended.

    Attributes:
        status: Its status.
        reason: Reason of the first failure; empty without one.
        resources: Its resources.
        outputs: Its outputs; empty until it is complete.
        events: Its events, oldest first.
    """

    status: str
    reason: str
    resources: tuple[StackResource, ...]
    outputs: Mapping[str, str]
    events: tuple[StackEvent, ...]
