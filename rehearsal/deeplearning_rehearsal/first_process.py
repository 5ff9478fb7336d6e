"""
The first process of the lab's namespaces.

    python -m deeplearning_rehearsal.first_process OPTIONS_JSON HOST_PROC_DESCRIPTOR
"""

import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"


def main(argument: str, host_proc: int) -> int:
    """
    Rehearse, and return the exit status.

    Args:
        argument: The options as JSON.
        host_proc: Descriptor of the `/proc` that was mounted when this process was started.
    """
    signal.signal(signal.SIGINT, end_at_once)
    lab_pid = int(os.readlink("self", dir_fd=host_proc))
    os.close(host_proc)
    from deeplearning_rehearsal.rehearsal import carry_out  # noqa: PLC0415 - slow, and interrupts are answered by now

    return carry_out(argument, lab_pid)


def end_at_once(_number: int, _frame: FrameType | None) -> None:
    """End this process, and with it all that is in its namespaces: to wait for threads would only take time."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # the progress display hides it
    os.write(sys.stderr.fileno(), b"\ninterrupted; nothing is left behind\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
