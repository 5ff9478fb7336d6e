"""Arguments that several commands have."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no other name
"""Subcommands of a parser; a string, since the class takes no type argument at run time."""


def add_place(parser: argparse.ArgumentParser, *, may_be_rehearsed: bool = True) -> None:
    """Add the arguments that name the cluster, and with them `--rehearsal`, unless the command works on AWS only."""
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
        help="read a rehearsal kept by --keep, never AWS (root; default DIR: build/rehearsal)",
    )


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return the reader of an argument that is a whole number of a range, both ends included."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, got {text!r}")
        return int(text)

    return read
