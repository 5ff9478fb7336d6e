"""Endings of a command: its errors as one line for people and one object for programs, interruptions, closed pipes."""

import json
import os
import select
import sys
from collections.abc import Callable

UNAVAILABLE = 2
"""The exit status of a command that could not be carried out, for an error that has none of its own."""
INTERRUPTED = 130
CLOSED_PIPE = 141
"""The exit statuses that shells give for SIGINT and SIGPIPE."""


def run_command(command: Callable[[], int]) -> int:
    """
    Run a command and return its exit status; 130 after Ctrl-C, 141 when the reader of its output ended, as `head` does.

    Raises:
        BrokenPipeError: A pipe other than standard output is closed.
    """
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        if not is_output_closed():
            raise
        return CLOSED_PIPE


def is_output_closed() -> bool:
    """Return whether the reader of standard output has ended, as `head` does; Python then writes no more to it."""
    output = select.poll()
    output.register(sys.stdout, 0)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def report_error(error: Exception, *, as_json: bool = False, program: str = "deeplearning-cdk") -> int:
    """Report an error on standard error, with `--json` on standard output too, and return the exit status."""
    status: int = getattr(error, "exit_status", UNAVAILABLE)
    sys.stderr.write(f"{program}: {error}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": {"message": str(error), "exit_status": status}}) + "\n")
        sys.stdout.flush()
    return status
