"""Failure reasons as documents, and their composed sentence for CloudFormation and older readers."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

MAX_REASON = 1000
"""Characters of a composed reason, and of each of its parts, in reports, the state item and signals."""
_LAST_LINES = "; last lines: "


class _Explained(Protocol):
    """Document with a composed `reason` and, since version 1, its parts."""

    @property
    def reason(self) -> str: ...
    @property
    def cause(self) -> str: ...
    @property
    def remedy(self) -> str: ...


@dataclass(frozen=True)
class Reason:
    """Reason of a failure."""

    cause: str  # Place and cause: `worker i-0a (10.0.0.7) failed to mount the file system: it timed out`
    remedy: str = ""  # Action for the user; empty when unknown
    output: str = ""  # End of a program's output, in lines; empty without one

    def __bool__(self) -> bool:
        """Return whether there is a reason."""
        return bool(self.cause)

    def __str__(self) -> str:
        """Return the composed sentence."""
        return compose_reason(self)

    def prefix(self, head: str) -> "Reason":
        """Return the same reason with `head` before its cause."""
        return replace(self, cause=f"{head}{self.cause}")

    def to_fields(self) -> dict[str, Any]:
        """Return the keys `reason`, which is composed, `cause`, `remedy` and `output`, each within `MAX_REASON`."""
        parts = {"cause": self.cause[:MAX_REASON], "remedy": self.remedy[:MAX_REASON]}
        return {"reason": compose_reason(self), **parts, "output": self.output[-MAX_REASON:]}

    @classmethod
    def of(cls, document: _Explained) -> "Reason":
        """Return the reason of a document; an older writer's composed sentence is the cause."""
        if not document.cause:
            return cls(document.reason)
        return cls(document.cause, document.remedy, getattr(document, "output", ""))


NO_REASON = Reason("")


def compose_reason(reason: Reason) -> str:
    """
    Return the sentence `cause; remedy; last lines: output` within `MAX_REASON`.

    CloudFormation shows 1,024 characters of a signal's reason. The output is cut first, then the end of the cause.
    """
    tail = f"; {reason.remedy}" if reason.remedy else ""
    room = MAX_REASON - len(tail)
    cause = reason.cause if len(reason.cause) <= room else f"{reason.cause[: max(0, room - 3)]}..."
    text = (cause + tail)[:MAX_REASON]
    lines = " | ".join(line.strip() for line in reason.output.splitlines() if line.strip())
    room = MAX_REASON - len(text) - len(_LAST_LINES)
    if not lines or room <= len("..."):
        return text
    return text + _LAST_LINES + (lines if len(lines) <= room else f"...{lines[3 - room :]}")
