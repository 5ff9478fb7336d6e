"""The arguments of the commands around an update: `changes` before it, `upgrade` after it."""

import argparse

from deeplearning_cli.operation_parsers import add_place, load_command


def add_update_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `changes` and `upgrade`."""
    _add_changes(commands)
    _add_upgrade(commands)


def _add_changes(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "changes",
        help="say what a deployment would replace, delete or update, before it happens",
        description="Compare a synthesized stack with the deployed one by CloudFormation's own rules, and say what "
        "would be replaced, deleted or updated in place, and what that means for nodes and data. Reads only.",
        epilog="exit status: 0 no data goes, 1 data would go or the deployment would be refused, 2 nothing could be "
        "compared; example: cdk synth --quiet && deeplearning-cdk changes",
    )
    add_place(parser, may_be_rehearsed=False)
    add = parser.add_argument
    add("--assembly", default="cdk.out", metavar="DIR", help="what `cdk synth` wrote (default: %(default)s)")
    add("--deployed", metavar="FILE", help="the deployed template, instead of asking CloudFormation")
    add("--json", action="store_true", help="print a JSON list, an entry a resource")
    parser.set_defaults(run=load_command("changes", "print_changes"))


def _add_upgrade(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "upgrade",
        help="replace nodes that run by ones of the deployed launch template",
        description="Replace the nodes that started from another launch template than the deployed one, with its "
        "image, type and agent: by an instance refresh of Auto Scaling, workers first, then the master. Nodes that are "
        "up to date stay. Jobs that are not elastic end.",
        epilog="exit status: 0 all nodes are of the deployed template, 1 AWS did not replace them, 2 it could not be "
        "begun; example: cdk deploy -c image_release=2026-11-22 && deeplearning-cdk upgrade",
    )
    add_place(parser)
    add = parser.add_argument
    add("--dry-run", action="store_true", help="name the nodes, and replace none")
    add("--yes", action="store_true", help="do not ask")
    add(
        "--keep-percent",
        type=_percent,
        default=50,
        metavar="N",
        help="share of the workers that go on meanwhile, in percent (default: %(default)s)",
    )
    parser.set_defaults(run=load_command("upgrade", "upgrade"))


def _percent(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 100:  # noqa: PLR2004 - the whole
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 100, got {text!r}")
    return int(text)
