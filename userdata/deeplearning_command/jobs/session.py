"""
`deeplearning session`: another command, between two lines that its caller on the user's machine recognizes.

A session of Session Manager prints lines of its own and does not report the exit status of its command
(https://github.com/aws/session-manager-plugin/issues/59).
"""

import argparse

from deeplearning_command.context import Context
from deeplearning_command.terminal import print_line
from deeplearning_contract.job_definition import SESSION_BEGUN, SESSION_ENDED

DESCRIPTION = "Run another command of `deeplearning`, and print its exit status."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser.add_argument("words", nargs=argparse.REMAINDER, help="the command and its arguments")


def run(options: argparse.Namespace, context: Context) -> int:
    """Run the command, and return its exit status."""
    from deeplearning_command.main import main  # noqa: PLC0415 - that module imports this one

    print_line(SESSION_BEGUN)
    status = 2
    try:
        status = main(options.words, context.root, context.programs, context.clock)
    except SystemExit as end:  # argparse refused the words
        status = end.code if isinstance(end.code, int) else 1
    finally:
        print_line(f"{SESSION_ENDED} {status}")
    return status
