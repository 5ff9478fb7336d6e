"""Errors of commands, and their report."""

import json
import sys

UNAVAILABLE = 2
"""Exit status of a command that could not be carried out, for an error that has none of its own."""


class UnavailableError(Exception):
    """The command cannot be carried out; the message has the cause and the remedy."""


def report_error(error: Exception, *, as_json: bool = False) -> int:
    """Report an error on standard error, with `--json` on standard output too, and return the exit status."""
    status: int = getattr(error, "exit_status", UNAVAILABLE)
    sys.stderr.write(f"deeplearning-cdk: {error}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": {"message": str(error), "exit_status": status}}) + "\n")
        sys.stdout.flush()
    return status


def require_modules(*modules: str, extra: str) -> None:
    """
    Require modules that an extra of this distribution installs.

    Raises:
        UnavailableError: One is missing; the message has the command that installs them.
    """
    from cdk_rehearsal.extras import describe_missing  # noqa: PLC0415 - commands about an account import no rehearsal

    if message := describe_missing(*modules, extra=extra):
        raise UnavailableError(message)
