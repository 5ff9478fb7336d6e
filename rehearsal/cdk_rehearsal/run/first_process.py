"""
The first process of the lab's namespaces.

    python -m cdk_rehearsal.run.first_process MODULE:FUNCTION ARGUMENT HOST_PROC_DESCRIPTOR
"""

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

_INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"


def main(entry: str, argument: str, host_proc: int) -> int:
    """
    Call a function with its argument and the id that this process has outside, and return its exit status.

    The module of `module:function` is loaded here, since that is slow and an interrupt is answered by then. `host_proc`
    is a descriptor of the `/proc` that was mounted when this process was started.
    """
    signal.signal(signal.SIGINT, end_at_once)
    lab_pid = int(os.readlink("self", dir_fd=host_proc))
    os.close(host_proc)
    module, _, name = entry.partition(":")
    return int(getattr(importlib.import_module(module), name)(argument, lab_pid))


def keep_on_interrupt(path: Path, list_lines: Callable[[], Iterable[str]]) -> None:
    """Let an interrupt write a file before it ends this process; one of an earlier interrupt is removed."""
    path.unlink(missing_ok=True)

    def end(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):  # A full disk must not keep the process.
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in list_lines()), encoding="utf-8")
            os.write(sys.stderr.fileno(), f"\nwhat happened until now is in {path}".encode())
        end_at_once(number, frame)

    signal.signal(signal.SIGINT, end)


def end_at_once(_number: int, _frame: FrameType | None) -> None:
    """End this process, and with it all that is in its namespaces: to wait for threads would only take time."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # the progress display hides it
    os.write(sys.stderr.fileno(), b"\ninterrupted; nothing is left behind\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
