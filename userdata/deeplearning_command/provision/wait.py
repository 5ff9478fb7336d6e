"""`deeplearning wait`: wait until every node has the data and the environment of the cluster's jobs."""

import argparse

from deeplearning_command.context import Context
from deeplearning_command.remote.survey import survey_hosts
from deeplearning_command.terminal import on_change, print_line
from deeplearning_jobs.hosts.preflight import describe_unready, has_failed

POLL_SECONDS = 5.0
DESCRIPTION = """
Wait until every node has the data and the environment of the cluster's props. A run script starts by itself after
that. Run it on the master as the login user.
"""


def run(_options: argparse.Namespace, context: Context) -> int:
    """Poll every node; the membership is read at each poll, so that evicted nodes are not awaited."""
    report = on_change(print_line)
    while True:
        survey = survey_hosts(context.open_remote())
        unready = survey.find_unready()
        missing = describe_unready(unready) + [f"{host} does not respond: {why}" for host, why in survey.silent.items()]
        report("\n".join(missing) or "data and environment are on every node")
        if not missing or has_failed(unready):
            return 1 if missing else 0
        context.clock.wait(POLL_SECONDS)
