"""`deeplearning-cdk rehearse`: its arguments; what it does is in `rehearsal`, which takes a while to load."""

import argparse

from cdk_rehearsal.iam.policy_arguments import add_policies
from deeplearning_cli.arguments import Commands, whole_number

_GPUS = "GPUs that nvidia-smi shows (default: 1 where the type of an instance has GPUs, else none)"
_ORDERS = "create and delete the stack in N orders, seeds 1 to N, without booting a node; needs no root"
_CASES = "inject fault cases and judge them: names with commas, all, your own my_cases.py or my_cases.py::my-case"
_JOBS = "cases at once, as far as memory allows (default: two a core)"
MOST_MINUTES = 1440
"""A day; a rehearsal takes minutes."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "rehearse",
        help="deploy a cloud assembly to an embedded AWS on this machine, boot its nodes and train",
        description="Deploy a synthesized cloud assembly to an embedded AWS on this machine, boot every node with its "
        "real user data, form the cluster and train with Horovod over SSH. Needs Linux and root, and no AWS account.",
        epilog="exit status: 0 as expected, 1 not as expected, 2 could not be tried, 130 interrupted",
    )
    add = parser.add_argument
    add("assembly", nargs="?", help="the cloud assembly that `cdk synth` wrote, usually cdk.out")
    add("--stack", metavar="NAME", help="which stack of the assembly (default: its only one)")
    add("--nodes", type=whole_number(1, 250), metavar="N", help="nodes, master included (default: as in the template)")
    add("--gpus-per-node", type=whole_number(0, 16), metavar="N", help=_GPUS)
    add(
        "--lustre-client",
        action="store_true",
        default=None,
        help="let the nodes' image have a client of FSx for Lustre",
    )
    add_policies(parser)
    add(
        "--no-referees",
        action="store_false",
        dest="referees",
        help="deploy a template that breaks a rule of AWS (default: refuse it, with all findings)",
    )
    add(
        "--expect",
        choices=("trained", "formed", "failed"),
        help="what to wait for and judge: a trained model, a formed cluster, or a stack that fails (default: trained)",
    )
    add("--minutes", type=_minutes, metavar="M", help="give up after M minutes (default: 15)")
    add("--seed", type=int, metavar="N", help="order in which resources are created (default: drawn, and shown)")
    add("--orders", type=whole_number(1, 1000), metavar="N", help=_ORDERS)
    add("--case", metavar="NAMES", help=_CASES)
    add("--jobs", type=whole_number(1, 64), metavar="N", help=_JOBS)
    add("--again", action="store_true", help="repeat cases that passed on the same sources, too")
    add("--list-cases", action="store_true", help="list the fault cases and end")
    add("--app", metavar="COMMAND", help="with --case: synthesize each case's own stack with this CDK app")
    add("--keep", action="store_true", help="keep the cluster running until Ctrl-C, and print how to log in")
    add("--verbose", "-v", action="store_true", help="show routine too, such as calls of the function that go well")
    add("--json", action="store_true", help="print the report as JSON on standard output, progress on standard error")
    add("--out", default="build/rehearsal", metavar="DIR", help="where reports go (default: %(default)s)")
    shared = "$XDG_CACHE_HOME/deeplearning-cdk, or ~/.cache/deeplearning-cdk"
    add("--cache", metavar="DIR", help=f"keeps downloads and images for every checkout (default: {shared})")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Rehearse; 0 as expected, 1 not as expected, 2 could not be tried."""
    if arguments.assembly is None and arguments.app is None and not arguments.list_cases:
        arguments.parser.error("the following arguments are required: assembly, or --app with --case")
    from deeplearning_cli.rehearsal import rehearse  # noqa: PLC0415 - takes as long as all other commands

    return rehearse(arguments)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"must be a number of minutes above 0, at most {MOST_MINUTES}, got {text!r}")
    return minutes
