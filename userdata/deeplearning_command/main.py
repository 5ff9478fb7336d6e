"""Where `deeplearning` starts: the parser, to which every subcommand adds itself."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deeplearning_agent.programs import Programs, system_path
from deeplearning_command.errors import REFUSED, RefusedError
from deeplearning_command.health_command import add_health
from deeplearning_command.provision_command import add_provision

INTERRUPTED = 130
DESCRIPTION = "What a user does with a cluster, on its nodes."


def main(arguments: Sequence[str], root: Path = Path("/"), programs: Programs | None = None) -> int:
    """
    Run one subcommand.

    Args:
        arguments: The command line, without the program.
        root: Where the node's file tree begins; `/` but for tests.
        programs: The node's programs. Default: those of the user's `PATH` and of the system.

    Returns:
        The exit status: 0, 1 when the answer is bad news, 2 when there is no answer, 130 interrupted.
    """
    options = make_parser().parse_args(arguments)
    try:
        status: int = options.run(options, root, programs or Programs(system_path(os.environ.get("PATH", ""))))
    except RefusedError as error:
        sys.stderr.write(f"deeplearning {options.subcommand}: {error}\n")
        return REFUSED
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return INTERRUPTED
    return status


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; each subcommand adds itself, with the function that runs it as the default of `run`."""
    parser = argparse.ArgumentParser(prog="deeplearning", description=DESCRIPTION)
    subcommands = parser.add_subparsers(title="commands", dest="subcommand", metavar="COMMAND", required=True)
    add_health(subcommands)
    add_provision(subcommands)
    return parser
