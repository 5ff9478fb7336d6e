"""Where `deeplearning` starts: the parser, to which every subcommand adds itself."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from deeplearning_agent.programs import Programs, system_path
from deeplearning_command.health_command import add_health

DESCRIPTION = "What a user does with a cluster, on its nodes."


def main(arguments: Sequence[str], root: Path = Path("/"), programs: Programs | None = None) -> int:
    """
    Run one subcommand.

    Args:
        arguments: The command line, without the program.
        root: Where the node's file tree begins; `/` but for tests.
        programs: The node's programs. Default: those of the user's `PATH` and of the system.

    Returns:
        The exit status: 0, 1 when the answer is bad news, 2 when there is no answer.
    """
    options = make_parser().parse_args(arguments)
    status: int = options.run(options, root, programs or Programs(system_path(os.environ.get("PATH", ""))))
    return status


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; each subcommand adds itself, with the function that runs it as the default of `run`."""
    parser = argparse.ArgumentParser(prog="deeplearning", description=DESCRIPTION)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_health(subcommands)
    return parser
