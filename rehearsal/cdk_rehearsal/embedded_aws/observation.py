"""Passes on what happens in the embedded AWS, for a timeline."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Topic = Literal["stack", "scaling", "message", "invocation", "signal", "refusal"]


@dataclass(frozen=True)
class Observation:
    """
    One thing that happened.

    Attributes:
        at: Monotonic time, in seconds.
        topic: Which part of AWS it happened in.
        subject: Logical id, group, instance, queue or function that it is about.
        text: What happened, for people.
        detail: The same, for programs.
    """

    at: float
    topic: Topic
    subject: str
    text: str
    detail: Mapping[str, Any] = field(default_factory=dict)


Observer = Callable[[Observation], None]


class Observations:
    """Hands observations to one observer, from any thread."""

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer

    def tell(self, topic: Topic, subject: str, text: str, **detail: Any) -> None:
        """Pass on that something happened just now."""
        if self._observer is not None:
            self._observer(Observation(time.monotonic(), topic, subject, text, detail))
