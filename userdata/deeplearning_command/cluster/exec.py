"""`deeplearning exec -- cmd`: a command on many hosts in parallel."""

import argparse
import secrets
import shlex
import sys
from collections.abc import Sequence

from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import HostResult, Remote
from deeplearning_command.terminal import RefusedError, draw_table, print_line
from deeplearning_node.health.findings import clean

AT_ONCE = 32
SECONDS = 600
KILL_SECONDS = 5
CONNECTION_SECONDS = 20
"""Time to connect and to end, in addition to the command's own."""
LATE, KILLED = 124, 128 + 9
"""Exit statuses of `timeout` after it ended the program, and of a killed program."""
MARK = "DEEPLEARNING_EXEC"
END_TEXT = """
count=0
while
    pids=$(grep -lsz '@MARK@' /proc/[0-9]*/environ /proc/[0-9]*/cmdline | cut -d/ -f3)
    [ -n "$pids" ]
do
    case $count in 0) kill $pids ;; 2[0-9]) kill -9 $pids ;; 30) exit 1 ;; esac
    count=$((count + 1))
    sleep 0.1
done 2>/dev/null
true
"""
"""
Text that sends SIGTERM to the processes with a mark, and SIGKILL after two seconds; it fails if one is left.

A process has the mark in its environment, or in its words before it sets the variable: the shell that the connection
begins. This text has it in brackets, as a pattern that does not match itself.
"""
DESCRIPTION = """
Run a command on every host in parallel, as the login user, and print its output with the host's name before each line.
A single word is a text for the host's shell; several are a program and its arguments, passed unchanged. A table of the
exit statuses follows on standard error. Ctrl-C ends the command on all hosts. Run it on the master.
Example: deeplearning exec --hosts deeplearning-worker2 -- nvidia-smi -L
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add hosts, limits and the command."""
    add = parser.add_argument
    add("--hosts", metavar="A,B", help="names, instance ids or addresses (default: every host)")
    add("--at-once", type=read_count, default=AT_ONCE, metavar="N", help="most hosts at a time (default: 32)")
    add("--timeout", type=read_count, default=SECONDS, metavar="S", help="end it on a host after S s (default: 600)")
    add("words", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command")


def run(options: argparse.Namespace, context: Context) -> int:
    """Run the command; RefusedError without a command, or for an unknown host."""
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise RefusedError("a command must be given; for example: deeplearning exec -- nvidia-smi -L")
    remote = context.remote
    hosts = remote.choose(options.hosts)
    mark = f"{MARK}={secrets.token_hex(8)}"
    width = max(len(host) for host in hosts)
    program = ["bash", "-c", words[0]] if len(words) == 1 else words
    limited = ["env", mark, "timeout", f"--kill-after={KILL_SECONDS}", str(options.timeout), *program]
    results = remote.run_all(
        hosts,
        shlex.join(limited),
        seconds=options.timeout + KILL_SECONDS + CONNECTION_SECONDS,
        at_once=options.at_once,
        on_line=lambda host, line: print_line(f"{host:<{width}} | {line.rstrip()}"),
        on_break=lambda: _end(remote, hosts, mark),
    )
    silent = [result.host for result in results if result.status is None]
    total = f"{sum(result.status == 0 for result in results)} of {len(results)} hosts ended with status 0"
    total += f"; no response from {', '.join(silent)}" if silent else ""
    rows = [describe_result(result, options.timeout) for result in results]
    sys.stderr.write("\n" + draw_table([("HOST", "STATUS", ""), *rows], total))
    return 0 if all(result.status == 0 for result in results) else 1


def describe_result(result: HostResult, seconds: int) -> tuple[str, str, str]:
    """Return host, status and cause of a result; some statuses have a known cause."""
    known = {LATE: f"took longer than {seconds} s", KILLED: "was killed, for its memory or after its time"}
    status = "none" if result.status is None else str(result.status)
    return result.host, status, clean(result.cause or known.get(result.status or 0, ""))


def read_count(text: str) -> int:
    """Parse a whole number of at least 1; argparse reports other texts."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _end(remote: Remote, hosts: Sequence[str], mark: str) -> None:
    """End the remaining processes of the command on the hosts: only those with its mark."""
    sys.stderr.write("\nending the command on all hosts\n")
    text = END_TEXT.replace("@MARK@", f"[{mark[0]}]{mark[1:]}")
    silent = [result.host for result in remote.run_all(hosts, text, seconds=CONNECTION_SECONDS) if result.status != 0]
    end = f"ended on all hosts except {', '.join(silent)}" if silent else "ended on all hosts"
    sys.stderr.write(f"{end}\n")
