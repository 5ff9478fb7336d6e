"""Events, resources and outcome of a stack."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol


@dataclass(frozen=True)
class StackResource:
    """A resource of a stack and its state; the reason is empty without one."""

    logical_id: str
    physical_id: str
    resource_type: str
    status: str
    reason: str


@dataclass(frozen=True)
class StackEvent(StackResource):
    """An event of a stack, or of a resource in a state; `at` is monotonic time in seconds."""

    at: float = field(default_factory=time.monotonic)
    timestamp: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    event_id: str = field(default_factory=lambda: str(uuid.uuid4()))


class NestedStack(Protocol):
    """A stack as the resource of its parent sees it."""

    arn: str
    status: str
    reason: str
    outputs: Mapping[str, str]

    def start(self) -> None:
        """Begin to create it."""

    def delete(self) -> None:
        """Begin to delete it."""

    def join(self, seconds: float) -> bool:
        """Wait for the end of what is done to it, up to a time in seconds; return whether it has ended."""


@dataclass(frozen=True)
class StackOutcome:
    """State of a stack: the reason of its first failure or none, outputs once it is complete, events oldest first."""

    status: str
    reason: str
    resources: tuple[StackResource, ...]
    outputs: Mapping[str, str]
    events: tuple[StackEvent, ...]


OpenStack = Callable[[str, Mapping[str, Any], Mapping[str, str], Mapping[str, str]], NestedStack]
"""Opens a stack by its name, template, parameters and tags."""
