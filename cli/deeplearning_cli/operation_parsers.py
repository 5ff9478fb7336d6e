"""The arguments of the commands that look at a cluster from outside: `status`, `logs` and `ssh`."""

import argparse
import importlib
import re
from collections.abc import Callable

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_TIME = re.compile(r"(\d{1,6})([smhd])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_JSON_KEYS = """\
--json prints one object; keys are added, never renamed:
  stack, region, stack_status, cluster   names, and CloudFormation's status
  verdict                                forming, formed, failed, stopped (on purpose, no node) or deleted
  phase, generation, formed, asked       of the state item; nodes with the master
  since, reason, notice                  since when the verdict holds; why the cluster is smaller; why it ends soon
  nodes[]                                name, role, instance_id, instance_type, address, zone, image_id, lifecycle,
                                         purchase, phase, gpu_count, launched_at, age_seconds
  troubles[]                             what, cause, remedy, is_past, lines[] (at, level, message)
  warnings[], log_in[], unread[]         texts; unread says what could not be read
  looked_at                              when, UTC; all times are ISO 8601
"""
_STATUS_END = (
    "exit status: 0 formed, forming or stopped, 1 failed or deleted, 2 could not be looked at, 130 interrupted"
)


def add_operation_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `status`, `logs` and `ssh`."""
    _add_status(commands)
    _add_logs(commands)
    _add_ssh(commands)


def read_time(text: str) -> float:
    """
    Read a length of time as `90s`, `30m`, `1h` or `2d`, in seconds.

    Raises:
        ArgumentTypeError: It is something else.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a number with s, m, h or d, got {text!r}; write e.g. 1h")
    return float(int(found[1]) * _UNIT_SECONDS[found[2]])


def _add_status(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "status",
        help="show a cluster from outside: its nodes, how far it is, what failed and what to do",
        description="Show a cluster from outside: stack, nodes, how far they are, what failed and why, what to do\n"
        "about it, and how to log in. Reads only, and goes on without what it may not read.\n"
        "While the cluster forms, a terminal shows it live until it has formed or failed.",
        epilog=f"{_JSON_KEYS}\n{_STATUS_END}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_place(parser)
    parser.add_argument("--watch", action="store_true", help="look again and again until it has formed or failed")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.set_defaults(run=load_command("status", "status"))


def _add_logs(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "logs",
        help="show what nodes and adjuster logged, merged by time",
        description="Show what nodes and adjuster logged, merged by time. Log groups outlive a rollback of the stack.",
        epilog="exit status: 0 shown, 2 could not be read, 130 interrupted; "
        "example: deeplearning-cdk logs --node master --since 2h --follow",
    )
    add_place(parser)
    parser.add_argument(
        "--node",
        default="all",
        metavar="NAME",
        help="a host name, master, an instance id, adjuster, or all (default: %(default)s)",
    )
    parser.add_argument(
        "--since", type=read_time, default="1h", metavar="TIME", help="as 90s, 30m, 1h, 2d (default: 1h)"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what is logged from now on")
    parser.add_argument(
        "--level",
        type=str.upper,
        choices=_LEVELS,
        default="INFO",
        help="the lowest level shown, in any case (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the lines as they were logged")
    parser.set_defaults(run=load_command("logs", "show_logs"))


def _add_ssh(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "ssh",
        help="log in on a node through Session Manager",
        description="Open a shell on a node, or run a command there as the login user, through Session Manager: no "
        "port is open for it. Needs the AWS CLI with its Session Manager plugin. With --ssh, OpenSSH goes through the "
        "same way, so that it can forward ports and agents; that needs your public key on the node.",
        epilog="exit status: that of the session, 2 it could not be begun; "
        "example: deeplearning-cdk ssh --node deeplearning-worker2 -- nvidia-smi",
    )
    add_place(parser)
    parser.add_argument(
        "--node",
        default="master",
        metavar="NAME",
        help="a host name, master, an instance id or an address (default: %(default)s)",
    )
    parser.add_argument("--ssh", action="store_true", help="use OpenSSH through Session Manager")
    parser.add_argument("--user", metavar="NAME", help="who logs in (default: the image's login user)")
    parser.add_argument("--dry-run", action="store_true", help="print the command, and do not run it")
    parser.set_defaults(run=load_command("ssh", "log_in"), command=[])


def add_place(parser: argparse.ArgumentParser, *, may_be_rehearsed: bool = True) -> None:
    """
    Add the arguments that say where the cluster is.

    Args:
        parser: The command's.
        may_be_rehearsed: The command works on a rehearsal too. Default: it does.
    """
    add = parser.add_argument
    add("stack", nargs="?", metavar="STACK", help="name of the stack (default: the only one that is a cluster)")
    add("--region", metavar="REGION", help="AWS region (default: AWS_REGION, AWS_DEFAULT_REGION, or the profile's)")
    add("--profile", metavar="NAME", help="profile of the AWS CLI (default: AWS_PROFILE, or the default one)")
    parser.set_defaults(rehearsal=None)
    if not may_be_rehearsed:
        return
    add(
        "--rehearsal",
        nargs="?",
        const="build/rehearsal",
        metavar="DIR",
        help="look at a rehearsal that --keep keeps, never at AWS (root; default DIR: build/rehearsal)",
    )


def load_command(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """Return a function that imports its command when it runs, so that `--help` answers at once."""

    def run(arguments: argparse.Namespace) -> int:
        command: Callable[[argparse.Namespace], int] = getattr(
            importlib.import_module(f"deeplearning_cli.{module}"), function
        )
        return command(arguments)

    return run
