"""Where `deeplearning` starts: the parser, to which every subcommand adds itself."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deeplearning_command.terminal.errors import REFUSED, RefusedError
from deeplearning_contract.version import VERSION
from deeplearning_node.programs import Programs, system_path

INTERRUPTED = 130
COMMANDS = {
    "hosts": "cluster.hosts",
    "health": "cluster.health",
    "check": "check.check",
    "exec": "cluster.exec",
    "provision": "provision.provision",
    "data": "provision.data",
    "environment": "provision.environment",
    "setup": "cluster.setup",
    "wait": "provision.wait",
    "plan": "jobs.plan",
    "run": "jobs.run",
    "stop": "jobs.stop",
    "logs": "jobs.logs",
    "end": "cluster.end",
}
"""Subcommand -> its module, in the order of the help; `add_hosts` of `cluster/hosts.py` adds `hosts`."""
INTERNAL = {"node-facts": "jobs.node_facts", "stop-when-idle": "cluster.stop_when_idle"}
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
    options = make_parser(*arguments[:1]).parse_args(arguments)
    try:
        status: int = options.run(options, root, programs or Programs(system_path(os.environ.get("PATH", ""))))
    except RefusedError as error:
        sys.stderr.write(f"deeplearning {options.subcommand}: {error}\n")
        return REFUSED
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return INTERRUPTED
    return status


def make_parser(named: str = "") -> argparse.ArgumentParser:
    """
    Return the parser; each subcommand adds itself, with the function that runs it as the default of `run`.

    Args:
        named: The only subcommand that it has to know: loading one takes half the time of loading all, and a job starts
            one on every host. Default, and for a name that is none: all of users.
    """
    parser = argparse.ArgumentParser(prog="deeplearning", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    subcommands = parser.add_subparsers(title="commands", dest="subcommand", metavar="COMMAND", required=True)
    known = COMMANDS | INTERNAL
    for name in [named] if named in known else COMMANDS:
        module = importlib.import_module(f"deeplearning_command.{known[name]}")
        getattr(module, f"add_{name.replace('-', '_')}")(subcommands)
    return parser
