"""`systemctl` of the lab's nodes: knows the verbs that a cluster uses, and fails on every other."""

import json
import socket
import sys
from collections.abc import Sequence

from .supervisor import CONTROL_SOCKET

VERBS = frozenset(
    {
        *("daemon-reload", "daemon-reexec", "enable", "disable", "start", "stop", "restart", "try-restart"),
        *("reload", "reload-or-restart", "status", "is-active", "is-enabled"),
    }
)
OPTIONS = frozenset({"--now", "--no-block", "--quiet", "-q", "--no-pager", "--system"})


class UsageError(ValueError):
    """The command line asks for what this stand-in does not do."""


def parse_command_line(arguments: Sequence[str]) -> dict[str, object]:
    """
    Read a command line.

    Raises:
        UsageError: A verb or option is not implemented, or units are missing.
    """
    options = [argument for argument in arguments if argument.startswith("-")]
    words = [argument for argument in arguments if not argument.startswith("-")]
    if unknown := [option for option in options if option not in OPTIONS]:
        raise UsageError(f"{unknown[0]} is not implemented by the systemctl stand-in")
    if not words or words[0] not in VERBS:
        raise UsageError(f"{' '.join(words[:1]) or 'a bare call'} is not implemented by the systemctl stand-in")
    if not words[0].startswith("daemon-") and not words[1:]:
        raise UsageError(f"{words[0]} must name units")
    return {"verb": words[0], "units": words[1:], "options": options}


def main(arguments: Sequence[str]) -> int:
    """Ask the service manager, print its answer, return its exit status."""
    try:
        request = parse_command_line(arguments)
    except UsageError as error:
        sys.stderr.write(f"systemctl: {error}\n")
        return 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(CONTROL_SOCKET)
        with connection.makefile("rw") as stream:
            stream.write(json.dumps(request) + "\n")
            stream.flush()
            answer = json.loads(stream.readline())
    if answer["text"] and not {"--quiet", "-q"} & set(arguments):
        reads = request["verb"] in {"is-active", "is-enabled", "status"}
        (sys.stdout if reads else sys.stderr).write(answer["text"] + "\n")
    return int(answer["status"])
