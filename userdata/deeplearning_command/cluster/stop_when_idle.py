"""`deeplearning stop-when-idle`: the program of the service that ends an idle cluster."""

import argparse

from deeplearning_command.cluster.end import end_cluster, wait_until_idle
from deeplearning_command.context import Context
from deeplearning_command.terminal import print_line
from deeplearning_node.node_facts import find_running_script

REASON = "idle"
DESCRIPTION = """
End the cluster once no host has run a job or brought data or software, no GPU has been busy, and no run script has run,
for so long. The service deeplearning-idle.service runs this where the cluster's props ask for it.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the time."""
    parser.add_argument("--seconds", type=int, required=True, metavar="N", help="how long it must be idle")


def run(options: argparse.Namespace, context: Context) -> int:
    """Wait, then end the cluster; the service runs a refused command again."""

    def describe_script() -> str:
        return "the run script runs" if find_running_script(context.root, context.facts.instance_id) else ""

    wait_until_idle(context, options.seconds / 60, describe_script)
    for line in end_cluster(context.open_remote(), REASON):
        print_line(line)
    return 0
