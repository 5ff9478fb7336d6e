"""`deeplearning exec -- cmd`: runs a command on many hosts at once."""

import argparse
import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.remote.nodes import HostResult, Remote
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_command.terminal.text_table import align
from deeplearning_node.health.findings import clean
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

ALL_WELL, SOME_FAILED = 0, 1
AT_ONCE = 32
SECONDS = 600.0
KILL_SECONDS = 5
CONNECTION_SECONDS = 20
"""What it takes to connect and to end, on top of the command's own time."""
LATE = 124
"""How `timeout` says that it ended what it ran."""
KILLED = 128 + 9
MARK = "DEEPLEARNING_EXEC"
DESCRIPTION = """
Run a command on every host at once, as the login user, and print what it says with the host's name before each line.
One word is a text for the host's shell; several are a program and its arguments, taken as they are. A table of the
exit statuses follows on standard error. Ctrl-C ends the command on all hosts. Run it on the master.
"""
EPILOG = (
    "exit status: 0 the command ended with 0 on every host, 1 not on every one, 2 it was not run at all; "
    "example: deeplearning exec --hosts deeplearning-worker2 -- nvidia-smi -L"
)


def add_exec(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser("exec", help="run a command on every host", description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    add("--hosts", metavar="A,B", help="names, instance ids or addresses (default: every host)")
    add("--at-once", type=_at_least_one, default=AT_ONCE, metavar="N", help="most hosts at a time (default: 32)")
    add("--timeout", type=_seconds, default=SECONDS, metavar="S", help="end it on a host after S s (default: 600)")
    add("words", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command")
    parser.set_defaults(run=run_exec)


def run_exec(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: There is nothing to run, or nowhere.
    """
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise RefusedError("a command must be given; for example: deeplearning exec -- nvidia-smi -L")
    remote = Remote.open(root, programs)
    hosts = remote.hosts if options.hosts is None else split_hosts(options.hosts)
    for host in hosts:
        remote.find(host)
    mark = f"{MARK}={secrets.token_hex(8)}"
    width = max(len(host) for host in hosts)

    def tell(host: str, line: str) -> None:
        sys.stdout.write(f"{host:<{width}} | {line.rstrip()}\n")
        sys.stdout.flush()

    try:
        results = remote.run_all(
            hosts,
            _wrap(words, options.timeout, mark),
            seconds=options.timeout + KILL_SECONDS + CONNECTION_SECONDS,
            at_once=options.at_once,
            on_line=tell,
        )
    except KeyboardInterrupt:
        _end(remote, hosts, mark)
        raise
    sys.stderr.write(_draw_table(results, options.timeout))
    return ALL_WELL if all(result.status == 0 for result in results) else SOME_FAILED


def _wrap(words: Sequence[str], seconds: float, mark: str) -> str:
    """Return the text that runs a command for a limited time, known by a mark in its environment."""
    program = ["bash", "-c", words[0]] if len(words) == 1 else list(words)
    return shlex.join(["env", mark, "timeout", f"--kill-after={KILL_SECONDS}", f"{seconds:g}", *program])


def _end(remote: Remote, hosts: Sequence[str], mark: str) -> None:
    """End what the command left on the hosts: exactly the processes that carry its mark."""
    found = f"grep -lsz '^{mark}$' /proc/[0-9]*/environ | cut -d/ -f3"
    text = f'pids=$({found}); [ -z "$pids" ] || {{ kill $pids; sleep 2; kill -9 $({found}); }} 2>/dev/null; true'
    silent = [result.host for result in remote.run_all(hosts, text, seconds=CONNECTION_SECONDS) if result.status != 0]
    end = f"ended on all hosts but {', '.join(silent)}" if silent else "ended on all hosts"
    sys.stderr.write(f"\n{end}")


def _draw_table(results: Sequence[HostResult], seconds: float) -> str:
    known = {LATE: f"took longer than {seconds:g} s", KILLED: "was killed, for memory or because it did not end"}
    rows = [("HOST", "STATUS", "")]
    for result in results:
        status = "none" if result.status is None else str(result.status)
        rows.append((result.host, status, clean(result.cause or known.get(result.status or 0, ""))))
    silent = [result.host for result in results if result.status is None]
    total = f"{sum(result.status == 0 for result in results)} of {len(results)} hosts ended with status 0"
    total += f"; no answer from {', '.join(silent)}" if silent else ""
    return "\n".join(["", *align(rows), "", total, ""])


def split_hosts(text: str) -> tuple[str, ...]:
    """
    Return the hosts that `--hosts` names, each once.

    Raises:
        RefusedError: It names none.
    """
    hosts = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not hosts:
        raise RefusedError(f"--hosts must name hosts separated by commas, got {text!r}; see: deeplearning hosts")
    return hosts


def _at_least_one(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of seconds of at least 1, got {text!r}")
    return float(text)
