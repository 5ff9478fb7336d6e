"""Entry point of `deeplearning`: the table of commands and its parser."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deeplearning_command.terminal import RefusedError, is_output_closed, print_line
from deeplearning_contract.version import VERSION

if TYPE_CHECKING:  # the help needs neither
    from deeplearning_node.deadline import Clock
    from deeplearning_node.programs import Programs

REFUSED, INTERRUPTED, CLOSED_PIPE = 2, 130, 141
SESSION = "session"
"""Word before the words of another command: see `run_in_session`."""
DESCRIPTION = "Use a cluster from its nodes: run jobs, manage their data and software, and check the nodes."


class Command(NamedTuple):
    """
    Subcommand.

    Its module is imported at its use, and has `DESCRIPTION`, `run(options, context) -> int`, and `add_options(parser)`
    if the command has options.
    """

    name: str
    module: str
    help: str
    statuses: Mapping[int | str, str]
    alias: str = ""
    is_internal: bool = False
    """True for a command of the node's own programs, which is not listed in the help."""


COMMANDS = (
    Command(
        "hosts",
        "cluster.hosts",
        "list the nodes, and whether they respond",
        {0: "all nodes respond or none was checked", 1: "some do not", 2: "the cluster has not formed"},
    ),
    Command(
        "health",
        "cluster.health",
        "check the health of every node",
        {0: "all nodes are healthy", 1: "some are not or did not respond", 2: "no node could be checked"},
    ),
    Command(
        "check",
        "check.check",
        "check this node against the contract, or a machine for an image",
        {0: "all checks passed", 1: "some failed", 2: "the checks could not run"},
    ),
    Command(
        "exec",
        "cluster.exec",
        "run a command on every host",
        {0: "the command ended with 0 on every host", 1: "not on every host", 2: "it was not run"},
    ),
    Command(
        "provision",
        "provision.provision",
        "install data and environment on this node",
        {0: "everything is installed", 1: "a step failed permanently", 2: "refused", 75: "a retry may succeed"},
    ),
    Command(
        "data",
        "provision.data",
        "show the data that jobs read, or stage it again",
        {0: "all data is complete", 1: "some is not", 2: "the state is unknown"},
    ),
    Command(
        "environment",
        "provision.environment",
        "show, build or enter the software environment of jobs",
        {0: "the environment is installed", 1: "it is not", 2: "none was declared or no node could be checked"},
        alias="env",
    ),
    Command(
        "setup",
        "cluster.setup",
        "run the set-up script again on all nodes",
        {0: "the script ended with 0 on every node", 1: "not on every node", 2: "it was not run"},
    ),
    Command(
        "wait",
        "provision.wait",
        "wait until every node has data and environment",
        {0: "every node has them", 1: "a step failed permanently", 2: "no node could be checked"},
    ),
    Command(
        "plan",
        "jobs.plan",
        "show the plan of a job, with reasons",
        {0: "planned", 1: "planned, but run would refuse it now", 2: "it cannot be planned"},
    ),
    Command(
        "run",
        "jobs.run",
        "run a job on the cluster",
        {
            "that of the job,": "which is the status of the rank that failed first if the launcher reports it",
            2: "the job was not started",
            127: "its launcher could not be started",
            130: "stopped by Ctrl-C",
        },
    ),
    Command(
        "stop",
        "jobs.stop",
        "end a job on every host",
        {0: "no process of the job is left", 1: "some may be", 2: "there is no such job"},
    ),
    Command(
        "logs",
        "jobs.logs",
        "show the output of a job",
        {0: "shown", 1: "not by all hosts (--agent)", 2: "there is no such job, run or log"},
    ),
    Command(
        "jobs",
        "jobs.jobs",
        "list the jobs and the states of their newest runs",
        {0: "listed", 2: "the node is not prepared"},
    ),
    Command("end", "cluster.end", "end the cluster", {0: "the cluster ends", 2: "it does not"}),
    Command("completion", "completion", "print the completion of commands for a shell", {0: "printed"}),
    Command(
        "start-job",
        "jobs.start_job",
        "",
        {"that of the job,": "or 0 with --detach", 2: "the job was not started"},
        is_internal=True,
    ),
    Command("node-facts", "cluster.node_facts", "", {0: "printed", 2: "the node is not prepared"}, is_internal=True),
    Command(
        "stop-when-idle", "cluster.stop_when_idle", "", {0: "the cluster ends", 2: "it does not"}, is_internal=True
    ),
)
"""Commands in the order of the help."""


class CommandParser(argparse.ArgumentParser):
    """Parser of one command; imports the command's module when it starts to parse."""

    module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the description and the options of the command, then parse."""
        if self.module:
            module, self.module = import_module(f"deeplearning_command.{self.module}"), ""
            self.description = module.DESCRIPTION
            self.set_defaults(run=module.run)
            if hasattr(module, "add_options"):
                module.add_options(self)
        return super().parse_known_args(args, namespace)


def main(
    arguments: Sequence[str], root: Path = Path("/"), programs: "Programs | None" = None, clock: "Clock | None" = None
) -> int:
    """
    Run one command, and return its exit status: 0, 1 for a failure, 2 if it could not run, 130 when interrupted, 141
    when the reader of its output ended.

    `root` is the root of the node's file tree. Default: the programs of the user's `PATH` and of the system, and the
    machine's clock.
    """
    try:
        try:
            return _run(arguments, root, programs, clock)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        if not is_output_closed():
            raise
        return CLOSED_PIPE


def _run(arguments: Sequence[str], root: Path, programs: "Programs | None", clock: "Clock | None") -> int:
    if not arguments:
        make_parser().print_help(sys.stderr)
        return REFUSED
    if arguments[0] == SESSION:
        return run_in_session(lambda: main(arguments[1:], root, programs, clock))
    options = make_parser(*arguments[:1]).parse_args(arguments)
    from deeplearning_command.context import Context  # noqa: PLC0415 - the help does not need it

    try:
        status: int = options.run(options, Context(root, programs, clock))
    except RefusedError as error:
        sys.stderr.write(f"deeplearning {options.subcommand}: {error}\n")
        return REFUSED
    return status


def run_in_session(command: Callable[[], int]) -> int:
    """
    Run a command between two lines that its caller on the user's machine recognizes, and return its exit status.

    A session of Session Manager prints lines of its own and does not report the exit status of its command
    (https://github.com/aws/session-manager-plugin/issues/59).
    """
    from deeplearning_contract.jobs.job_definition import SESSION_BEGUN, SESSION_ENDED  # noqa: PLC0415 - the help needs none

    print_line(SESSION_BEGUN)
    status = REFUSED
    try:
        status = command()
    except SystemExit as end:  # argparse refused the words
        status = end.code if isinstance(end.code, int) else 1
    finally:
        print_line(f"{SESSION_ENDED} {status}")
    return status


def make_parser(named: str = "") -> argparse.ArgumentParser:
    """Return the parser of all commands for users, and of the command `named`."""
    parser = argparse.ArgumentParser(
        prog="deeplearning",
        description=DESCRIPTION,
        epilog="exit status: 2 refused or no command given, 130 interrupted, 141 the reader of the output ended; "
        "COMMAND --help has those of each command",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    subcommands = parser.add_subparsers(
        title="commands", dest="subcommand", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for command in COMMANDS:
        if command.is_internal and command.name != named:
            continue
        epilog = "exit status: " + "; ".join(f"{status} {words}" for status, words in command.statuses.items())
        shown: dict[str, Any] = {} if command.is_internal else {"help": command.help}
        aliases = [command.alias] if command.alias else []
        subcommands.add_parser(command.name, aliases=aliases, epilog=epilog, **shown).module = command.module
    return parser
