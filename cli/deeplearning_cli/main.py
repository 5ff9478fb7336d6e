"""
The `deeplearning-cdk` command.

Nothing heavy is imported before a subcommand runs, so that `--help` prints at once.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from cdk_rehearsal.printing import run_command
from deeplearning_cli.arguments import Commands
from deeplearning_cli.errors import UNAVAILABLE, UnavailableError, report_error, require_modules
from deeplearning_contract.version import VERSION

SHELLS = ("bash", "zsh", "fish", "tcsh")
COMMANDS = {
    "doctor": "doctor",
    "preflight": "preflight",
    "estimate": "estimate.command",
    "deploy": "deploy.command",
    "rehearse": "rehearse",
    "prepare-cluster": "prepare_cluster",
    "submit": "jobs.submit",
    "jobs": "jobs.listing",
    "stop": "jobs.stop",
    "plan": "jobs.plan",
    "status": "status",
    "logs": "logs",
    "ssh": "ssh",
    "changes": "changes.command",
    "upgrade": "upgrade",
}
"""Command -> its module, in the order of the help; `add_parser` of the module adds it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status that `--help` documents."""
    return run_command(lambda: _run(list(sys.argv[1:] if argv is None else argv)))


def _run(words: Sequence[str]) -> int:
    if not words:
        make_parser().print_help(sys.stderr)
        return UNAVAILABLE
    own, command = split_command(words)
    arguments, unknown = make_parser(*own[:1]).parse_known_args(own)
    if unknown:
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if command:
        arguments.command = command
    status: int = arguments.run(arguments)
    return status


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split what is behind `--`, a node's command or cdk's arguments; argparse would take it for the stack's name."""
    if list(words[:1]) not in (["ssh"], ["deploy"]) or "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def make_parser(named: str = "") -> argparse.ArgumentParser:
    """Return the parser of one command; without a name, or with an unknown one, of all commands."""
    parser = argparse.ArgumentParser(
        prog="deeplearning-cdk",
        description="Operate deep-learning training clusters on AWS from your machine.",
        epilog="exit status: 0 as promised, 1 not as promised, 2 could not be begun, or no command was given, 130 "
        "interrupted, 141 the reader of the output ended; COMMAND --help has what a command promises",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in [named] if named in COMMANDS else COMMANDS:
        importlib.import_module(f"deeplearning_cli.{COMMANDS[name]}").add_parser(commands)
    _add_completion(commands)
    for own in commands.choices.values():
        own.set_defaults(parser=own)  # Its usage belongs to its errors, which argparse reports for the whole program.
    return parser


def _add_completion(commands: Commands) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a script that completes this command's words in a shell",
        description="Print a script that completes the words of deeplearning-cdk in a shell.",
        epilog="exit status: 0 printed, 2 shtab is missing; examples: source <(deeplearning-cdk completion bash), "
        "in fish: deeplearning-cdk completion fish | source",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=_print_completion)


def _print_completion(arguments: argparse.Namespace) -> int:
    try:
        require_modules("shtab", extra="operate")
    except UnavailableError as error:
        return report_error(error)
    import shtab  # noqa: PLC0415 - only this command needs it

    print(shtab.complete(make_parser(), arguments.shell))
    return 0


if __name__ == "__main__":
    sys.exit(main())
