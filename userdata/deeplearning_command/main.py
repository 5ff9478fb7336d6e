"""Where `deeplearning` starts: the parser, to which every subcommand adds itself."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deeplearning_command.check.check import add_check
from deeplearning_command.cluster.end import add_end
from deeplearning_command.cluster.exec import add_exec
from deeplearning_command.cluster.health import add_health
from deeplearning_command.cluster.hosts import add_hosts
from deeplearning_command.cluster.setup import add_setup
from deeplearning_command.cluster.stop_when_idle import add_stop_when_idle
from deeplearning_command.jobs.logs import add_logs
from deeplearning_command.jobs.node_facts import add_node_facts
from deeplearning_command.jobs.plan import add_plan
from deeplearning_command.jobs.run import add_run
from deeplearning_command.jobs.stop import add_stop
from deeplearning_command.provision.data import add_data
from deeplearning_command.provision.environment import add_environment
from deeplearning_command.provision.provision import add_provision
from deeplearning_command.provision.wait import add_wait
from deeplearning_command.terminal.errors import REFUSED, RefusedError
from deeplearning_contract.version import VERSION
from deeplearning_node.programs import Programs, system_path

INTERRUPTED = 130
INTERNAL = (["node-facts"], ["stop-when-idle"])
"""Commands that programs of the node run; no list shows them, and no message offers them."""
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
    options = make_parser(with_internal=list(arguments[:1]) in INTERNAL).parse_args(arguments)
    try:
        status: int = options.run(options, root, programs or Programs(system_path(os.environ.get("PATH", ""))))
    except RefusedError as error:
        sys.stderr.write(f"deeplearning {options.subcommand}: {error}\n")
        return REFUSED
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return INTERRUPTED
    return status


def make_parser(*, with_internal: bool = False) -> argparse.ArgumentParser:
    """
    Return the parser; each subcommand adds itself, with the function that runs it as the default of `run`.

    Args:
        with_internal: Add the commands that programs of the node run. Default: those of users alone.
    """
    parser = argparse.ArgumentParser(prog="deeplearning", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    subcommands = parser.add_subparsers(title="commands", dest="subcommand", metavar="COMMAND", required=True)
    add_hosts(subcommands)
    add_health(subcommands)
    add_check(subcommands)
    add_exec(subcommands)
    add_provision(subcommands)
    add_data(subcommands)
    add_environment(subcommands)
    add_setup(subcommands)
    add_wait(subcommands)
    add_plan(subcommands)
    add_run(subcommands)
    add_stop(subcommands)
    add_logs(subcommands)
    add_end(subcommands)
    if with_internal:
        add_node_facts(subcommands)
        add_stop_when_idle(subcommands)
    return parser
