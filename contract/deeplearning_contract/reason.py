"""Reason of a failure: one value with its parts, and the sentence that CloudFormation and log messages show."""

from dataclasses import dataclass, replace

MAX_REASON = 1000
"""Characters of a composed sentence, and of each part in reports, the state record, events and signals."""
_LAST_LINES = "; last lines: "


@dataclass(frozen=True)
class Reason:
    """Reason of a failure, of a smaller size or of a departure; false without a cause. Its text is the sentence."""

    cause: str = ""  # Place and cause: `worker i-0a (10.0.0.7) failed to mount the file system: it timed out`
    remedy: str = ""  # Action for the user; empty when unknown
    output: str = ""  # End of a program's output, in lines; empty without one

    def __bool__(self) -> bool:
        """Return whether there is a reason."""
        return bool(self.cause)

    def __str__(self) -> str:
        """
        Return the sentence `cause; remedy; last lines: output` within `MAX_REASON`.

        CloudFormation shows 1,024 characters of a signal's reason. The output is cut first, then the end of the cause.
        """
        tail = f"; {self.remedy}" if self.remedy else ""
        text = (_cut(self.cause, MAX_REASON - len(tail)) + tail)[:MAX_REASON]
        lines = " | ".join(line.strip() for line in self.output.splitlines() if line.strip())
        room = MAX_REASON - len(text) - len(_LAST_LINES)
        if not lines or room <= len("..."):
            return text
        return text + _LAST_LINES + (lines if len(lines) <= room else f"...{lines[3 - room :]}")

    def prefix(self, head: str) -> "Reason":
        """Return the same reason with `head` before its cause."""
        return replace(self, cause=f"{head}{self.cause}")

    def shorten(self, most: int = MAX_REASON) -> "Reason":
        """Return the same reason with at most `most` characters a part: the start of a text, the end of output."""
        return Reason(_cut(self.cause, most), _cut(self.remedy, most), self.output[-most:])


NO_REASON = Reason()


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(0, most - 3)]}..."
