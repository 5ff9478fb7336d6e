"""`deeplearning setup`: runs the user's set-up script again, on many nodes at once."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.cluster.exec import split_hosts
from deeplearning_command.remote.nodes import HostResult, Remote
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_command.terminal.text_table import align
from deeplearning_contract.names import ENVIRONMENT_FILE, STATE_DIRECTORY
from deeplearning_node.health.findings import clean
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

ALL_WELL, SOME_FAILED = 0, 1
SETUP_LOG = "/var/log/deeplearning-setup-script.log"
"""The agent's own log of it; its module would bring botocore, which takes half a second."""
SCRIPT = f"{STATE_DIRECTORY}/scripts/setup"
SECONDS = 1800
KILL_SECONDS = 10
CONNECTION_SECONDS = 30
NO_SCRIPT = "this node has no set-up script"
LATE, KILLED, ABSENT = 124, 137, 127
TOLD_LINES = 5
DESCRIPTION = f"""
Run the cluster's set-up script again as root, on all nodes at the same time. Every node has run it once before it
joined; a new node runs it by itself. What it writes is in {SETUP_LOG} on each node; the end of it is shown here for the
nodes where it failed. A node whose role has no set-up script is left out. Run it on the master.
"""
EPILOG = "exit status: 0 the script ended with 0 on every node, 1 not on every one, 2 it was not run at all"


def add_setup(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser(
        "setup", help="run the set-up script again on all nodes", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("--hosts", metavar="A,B", help="names, instance ids or addresses (default: every node)")
    parser.add_argument("--timeout", type=int, default=SECONDS, metavar="S", help="end it after S s (default: 1800)")
    parser.set_defaults(run=run_setup)


def run_setup(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: No node has a script, or the nodes cannot be asked.
    """
    if options.timeout < 1:
        raise RefusedError(f"--timeout must be at least 1, got {options.timeout}")
    remote = Remote.open(root, programs)
    hosts = remote.hosts if options.hosts is None else split_hosts(options.hosts)
    for host in hosts:
        remote.find(host)

    def tell(result: HostResult) -> None:
        if result.status != 0 and not _has_none(result):
            for line in result.output.splitlines()[-TOLD_LINES:]:
                sys.stdout.write(f"{result.host} | {clean(line)}\n")
            sys.stdout.flush()

    limit = options.timeout + KILL_SECONDS + CONNECTION_SECONDS
    results = remote.run_all(hosts, write_text(options.timeout), seconds=limit, on_result=tell)
    if all(map(_has_none, results)):
        raise RefusedError(
            "these nodes must have a set-up script, got none; set setup_script of workers or master, and deploy"
        )
    sys.stdout.write(_draw_table(results, options.timeout))
    return ALL_WELL if all(result.status == 0 or _has_none(result) for result in results) else SOME_FAILED


def _has_none(result: HostResult) -> bool:
    """Return whether the node's role has no script; a script may end with the same status."""
    return result.status == ABSENT and result.output.strip() == NO_SCRIPT


def write_text(seconds: int, script: str = SCRIPT, variables: str = ENVIRONMENT_FILE, log: str = SETUP_LOG) -> str:
    """
    Return what a node's shell runs: the script with the variables that the agent gave it, and its own status.

    Args:
        seconds: After which the script and its children are ended.
        script: Where it lies. Default: where the agent puts it.
        variables: The contract's variables. Default: where the agent puts them.
        log: Takes the script's output. Default: the agent's own log of it.
    """
    script, variables, log = map(shlex.quote, (script, variables, log))
    inner = (
        f"[ -x {script} ] || {{ echo '{NO_SCRIPT}'; exit {ABSENT}; }}; "
        f"set -a; . {variables}; HOME=/root; USER=root; set +a; "
        f"timeout --kill-after={KILL_SECONDS} {seconds} {script} >{log} 2>&1 </dev/null; "
        f"status=$?; tail -n {TOLD_LINES} {log}; exit $status"
    )
    return shlex.join(["sudo", "-n", "sh", "-c", inner])


def _draw_table(results: Sequence[HostResult], seconds: int) -> str:
    known = {LATE: f"took longer than {seconds} s", KILLED: "was killed"}
    rows = [("HOST", "STATUS", "")]
    for result in results:
        if _has_none(result):
            rows.append((result.host, "-", "has no set-up script"))
            continue
        status = "none" if result.status is None else str(result.status)
        rows.append((result.host, status, clean(result.cause or known.get(result.status or 0, ""))))
    good, asked = sum(result.status == 0 for result in results), sum(not _has_none(result) for result in results)
    return "\n".join([*align(rows), "", f"the set-up script ended with status 0 on {good} of {asked} nodes", ""])
