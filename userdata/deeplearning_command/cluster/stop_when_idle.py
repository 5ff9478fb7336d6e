"""`deeplearning stop-when-idle`: program of the service that ends an idle cluster."""

import argparse

from deeplearning_command.cluster.end import end_cluster, wait_until_idle
from deeplearning_command.context import Context
from deeplearning_command.terminal import print_line
from deeplearning_node.node_facts import find_running_script

REASON = "idle"
DESCRIPTION = """
End the cluster once no host has run a job or staged data or software, no GPU has been busy, and no run script has run,
for N seconds. The service deeplearning-idle.service runs this if the cluster's props enable it.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the time."""
    parser.add_argument("--seconds", type=int, required=True, metavar="N", help="idle time in seconds")


def run(options: argparse.Namespace, context: Context) -> int:
    """Wait, then end the cluster; the service restarts a refused command."""

    def describe_script() -> str:
        return "the run script is running" if find_running_script(context.root, context.facts.instance_id) else ""

    wait_until_idle(context, options.seconds / 60, describe_script)
    for line in end_cluster(context.open_remote(), REASON):
        print_line(line)
    return 0
