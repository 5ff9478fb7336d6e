"""`deeplearning stop-when-idle`: what the master's idle service runs, when the user wants an idle cluster to end."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.cluster.end import end_cluster
from deeplearning_command.cluster.idle_watch import IdleWatch
from deeplearning_command.remote.nodes import Remote, read_facts
from deeplearning_node.deadline import Clock
from deeplearning_node.programs import Programs
from deeplearning_node.run_script_state import find_running_script

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

REASON = "idle"
DESCRIPTION = """
End the cluster once no host has run a job or brought data or software, no GPU has been busy, and no run script has run,
for so long. The service deeplearning-idle.service runs this where the cluster's props ask for it.
"""


def add_stop_when_idle(subcommands: "Subcommands") -> None:
    """Add the subcommand; no list of commands shows it."""
    parser = subcommands.add_parser("stop-when-idle", description=DESCRIPTION)
    parser.add_argument("--seconds", type=int, required=True, metavar="N", help="how long it must be idle")
    parser.set_defaults(run=run_stop_when_idle)


def run_stop_when_idle(options: argparse.Namespace, root: Path, programs: Programs, clock: Clock | None = None) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: The hosts cannot be asked, or AWS did not take the end; the service tries again.
    """
    clock = clock or Clock()
    IdleWatch(root, programs, clock, _say, find_more=lambda: describe_script(root)).wait(options.seconds / 60)
    remote = Remote.open(root, programs)
    for line in end_cluster(remote, REASON):
        _say(line)
    return 0


def describe_script(root: Path) -> str:
    """Say that the cluster's run script runs; empty when it does not."""
    return "the run script runs" if find_running_script(root, read_facts(root).instance_id) else ""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
