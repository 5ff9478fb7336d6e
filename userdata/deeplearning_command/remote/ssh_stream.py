"""What comes back over `ssh`: lines as they come, and the status that the shell there told."""

import contextlib
import os
import re
import signal
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

KEPT_BYTES = 1 << 20
LINE_BYTES = 1 << 16

# Sent before the text: the shell there tells its own status, so that 255 from `ssh` alone means no answer.
TELL_STATUS = 'trap \'printf "\\001%s\\n" "$?"\' EXIT\n'
_STATUS = re.compile(rb"\x01(\d{1,3})\n")


def follow(process: "subprocess.Popen[bytes]", tell: Callable[[str], None]) -> tuple[str, int | None]:
    """Read a program's lines to the end; return the last of them, and the status that the shell there told."""
    kept: deque[bytes] = deque()
    size, status = 0, None
    for line in _lines(process):
        found = _STATUS.search(line)
        text = line if found is None else line[: found.start()] + line[found.end() :]
        status = int(found[1]) if found else status
        if not text:
            continue
        tell(text.decode("utf-8", "replace"))
        kept.append(text)
        size += len(text)
        while size > KEPT_BYTES:
            size -= len(kept.popleft())
    return b"".join(kept).decode("utf-8", "replace"), status


def _lines(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    if process.stdout is not None:
        with process.stdout as stream:
            yield from iter(lambda: stream.readline(LINE_BYTES), b"")


def kill(process: "subprocess.Popen[bytes]") -> None:
    """End a program and what it started here."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
