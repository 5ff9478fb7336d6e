"""Events of the embedded AWS, for a timeline."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Topic = Literal["stack", "scaling", "message", "invocation", "signal", "refusal"]


@dataclass(frozen=True)
class Observation:
    """One event in a part of AWS; `detail` is its text for programs."""

    at: float
    """Monotonic time, in seconds."""
    topic: Topic
    subject: str
    """Logical id, group, instance, queue or function."""
    text: str
    detail: Mapping[str, Any] = field(default_factory=dict)


Observer = Callable[[Observation], None]


class Observations:
    """Hands observations to one observer, from any thread."""

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer

    def report(self, topic: Topic, subject: str, text: str, **detail: Any) -> None:
        """Report an event of just now."""
        if self._observer is not None:
            self._observer(Observation(time.monotonic(), topic, subject, text, detail))
