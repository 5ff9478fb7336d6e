"""How a command reports that it could not be carried out: one line for people, one object for programs."""

import json
import sys

UNAVAILABLE = 2
"""The exit status of a command that could not be carried out."""


def report_error(error: Exception, *, as_json: bool = False, status: int = UNAVAILABLE) -> int:
    """
    Report an error on standard error; with `--json` on standard output too, so that it always holds JSON.

    Args:
        error: Its text names the cause and the remedy.
        as_json: The user gave `--json`. Default: no.
        status: The command's exit status. Default: 2, it could not be carried out.

    Returns:
        The exit status.
    """
    print(f"deeplearning-cdk: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": {"message": str(error), "exit_status": status}}), flush=True)
    return status
