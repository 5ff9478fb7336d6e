"""`deeplearning wait`: ends when every node has the data and the environment that jobs were promised."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.remote.nodes import Remote
from deeplearning_command.remote.survey import survey_hosts
from deeplearning_jobs.hosts.preflight import describe_unready, has_failed
from deeplearning_node.deadline import Clock
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

READY, FAILED = 0, 1
PAUSE_SECONDS = 5.0
DESCRIPTION = """
Wait until every node has the data and the environment that the cluster's props ask for. A run script starts after that
by itself. Run it on the master as the login user.
"""
EPILOG = "exit status: 0 all is there, 1 something failed for good, 2 nobody could be asked"


def add_wait(subcommands: "Subcommands") -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser(
        "wait", help="wait until data and environment are on every node", description=DESCRIPTION, epilog=EPILOG
    )
    parser.set_defaults(run=run_wait)


def run_wait(_options: argparse.Namespace, root: Path, programs: Programs, clock: Clock | None = None) -> int:
    """
    Run the subcommand.

    The membership is read anew each time, so that a node that is dropped is not waited for.

    Args:
        _options: None so far.
        root: Where the node's file tree begins.
        programs: Where `ssh` is.
        clock: Measures the pauses. Default: real time.

    Returns:
        The exit status.

    Raises:
        RefusedError: This node or this user cannot ask the others.
    """
    clock, said = clock or Clock(), [""]
    while True:
        survey = survey_hosts(Remote.open(root, programs), port_count=0)
        unready = survey.find_unready()
        lines = describe_unready(unready) + [f"{host} does not answer: {why}" for host, why in survey.silent.items()]
        if lines != said:
            sys.stdout.write("\n".join([*lines, ""]) if lines else "data and environment are on every node\n")
            sys.stdout.flush()
            said = lines
        if not lines:
            return READY
        if has_failed(unready):
            return FAILED
        clock.wait(PAUSE_SECONDS)
