"""Report of a command that could not be carried out: one line for people, one object for programs."""

import json
import sys

UNAVAILABLE = 2
"""The exit status of a command that could not be carried out, for an error that has none of its own."""


def report_error(error: Exception, *, as_json: bool = False, program: str = "deeplearning-cdk") -> int:
    """Report an error on standard error, with `--json` on standard output too, and return the exit status."""
    status: int = getattr(error, "exit_status", UNAVAILABLE)
    sys.stderr.write(f"{program}: {error}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": {"message": str(error), "exit_status": status}}) + "\n")
        sys.stdout.flush()
    return status
