"""`deeplearning setup`: another run of the user's set-up script, on many nodes in parallel."""

import argparse
import shlex
import sys

from deeplearning_command.cluster.exec import describe_result
from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import HostResult
from deeplearning_command.terminal import RefusedError, draw_table, print_line
from deeplearning_contract.names import ENVIRONMENT_FILE, STATE_DIRECTORY
from deeplearning_node.health.findings import clean

SETUP_LOG = "/var/log/deeplearning-setup-script.log"
"""Log that the agent also uses; importing the agent's module would load botocore, which takes half a second."""
SCRIPT = f"{STATE_DIRECTORY}/scripts/setup"
SECONDS = 1800
KILL_SECONDS = 10
CONNECTION_SECONDS = 30
NO_SCRIPT = "this node has no set-up script"
ABSENT = 127
SHOWN_LINES = 5
DESCRIPTION = f"""
Run the cluster's set-up script again as root, on all nodes in parallel. Every node has run it once before it joined; a
new node runs it by itself. Its output is in {SETUP_LOG} on each node; the last lines are shown for the nodes where it
failed. A node whose role has no set-up script is omitted. Run it on the master.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add hosts and the limit."""
    parser.add_argument("--hosts", metavar="A,B", help="names, instance ids or addresses (default: every node)")
    parser.add_argument("--timeout", type=int, default=SECONDS, metavar="S", help="end it after S s (default: 1800)")


def run(options: argparse.Namespace, context: Context) -> int:
    """Run the script; RefusedError if no node has one."""
    if options.timeout < 1:
        raise RefusedError(f"--timeout must be at least 1, got {options.timeout}")
    remote = context.remote

    def report(result: HostResult) -> None:
        if result.status != 0 and not _has_none(result):
            for line in result.output.splitlines()[-SHOWN_LINES:]:
                print_line(f"{result.host} | {clean(line)}")

    def report_break() -> None:
        sys.stderr.write(
            f"\nthe set-up script runs on, for at most {options.timeout} s; its output is in {SETUP_LOG}\n"
        )

    limit = options.timeout + KILL_SECONDS + CONNECTION_SECONDS
    text = write_text(options.timeout)
    results = remote.run_all(remote.choose(options.hosts), text, seconds=limit, on_result=report, on_break=report_break)
    asked = [result for result in results if not _has_none(result)]
    if not asked:
        raise RefusedError(
            "these nodes must have a set-up script, got none; set setup_script of workers or master, and deploy"
        )
    rows = [
        (result.host, "-", "has no set-up script") if _has_none(result) else describe_result(result, options.timeout)
        for result in results
    ]
    good = sum(result.status == 0 for result in asked)
    total = f"the set-up script ended with status 0 on {good} of {len(asked)} nodes"
    sys.stdout.write(draw_table([("HOST", "STATUS", ""), *rows], total))
    return 0 if good == len(asked) else 1


def _has_none(result: HostResult) -> bool:
    """Return whether the node's role has no script; the output decides, since a script may end with the same status."""
    return result.status == ABSENT and result.output.strip() == NO_SCRIPT


def write_text(seconds: int, script: str = SCRIPT, variables: str = ENVIRONMENT_FILE, log: str = SETUP_LOG) -> str:
    """Return the shell text that runs the script as the agent does, with its variables and log, for limited seconds."""
    script, variables, log = map(shlex.quote, (script, variables, log))
    inner = (
        f"[ -x {script} ] || {{ echo '{NO_SCRIPT}'; exit {ABSENT}; }}; "
        f"set -a; . {variables}; HOME=/root; USER=root; set +a; "
        f"timeout --kill-after={KILL_SECONDS} {seconds} {script} >{log} 2>&1 </dev/null; "
        f"status=$?; tail -n {SHOWN_LINES} {log}; exit $status"
    )
    return shlex.join(["sudo", "-n", "sh", "-c", inner])
