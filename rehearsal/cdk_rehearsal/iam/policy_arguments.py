"""Arguments of commands for policies of the account and of its organization."""

import argparse


def add_policies(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add(
        "--organization-policy",
        action="append",
        dest="organization_policies",
        metavar="FILE",
        help="a service control policy of the account's organization; repeatable, as the policies of one level",
    )
    add(
        "--deployment-boundary",
        metavar="FILE",
        help="the permissions boundary of the role with which CloudFormation creates resources",
    )
    add(
        "--account-policy",
        action="append",
        type=read_pair,
        default=[],
        dest="account_policies",
        metavar="NAME=FILE",
        help="a managed policy that the account has before, by its name with its path; repeatable",
    )


def read_pair(text: str) -> tuple[str, str]:
    """Return the two sides of an argument; ArgumentTypeError where one is missing."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    return name, value
