"""`deeplearning provision`: program of the service that installs data and environment of jobs on a node."""

import argparse
import importlib
import logging
from concurrent.futures import ThreadPoolExecutor

from deeplearning_command.context import Context
from deeplearning_node.provision_status import ENVIRONMENT_STEP, NOT_STARTED, name_steps
from deeplearning_provision.status import Status
from deeplearning_provision.steps import Outcome, join_outcomes, settle_step

DESCRIPTION = """
Install the requirements of the cluster's jobs on this node: data from S3 and the software environment. The service
deeplearning-provision runs it after the shared file system is mounted; completed parts are skipped.
"""


def run(_options: argparse.Namespace, context: Context) -> int:
    """Install data and environment concurrently, as the login user."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    facts, clock = context.facts, context.clock
    context.require_login_user()
    status = Status(context.root, clock)
    for name in name_steps(facts.needs):
        status.wait(name, NOT_STARTED)
    node = (facts, status, context.root, context.programs, clock)

    # Imported here, since most commands never need them.
    def stage_data() -> Outcome:
        outcome: Outcome = importlib.import_module("deeplearning_provision.data.sources").stage_all(*node)
        return outcome

    def make_environment() -> Outcome:
        kinds = importlib.import_module("deeplearning_provision.environments.kinds")

        def build_or_install() -> str:
            kinds.build_or_install(*node)
            return status.get(ENVIRONMENT_STEP).detail

        return settle_step(status, ENVIRONMENT_STEP, build_or_install, clock)

    parts = [(facts.needs.data, stage_data), (facts.needs.environment, make_environment)]
    with ThreadPoolExecutor(2, "provision") as pool:
        outcomes = [future.result() for future in [pool.submit(bring) for need, bring in parts if need]]
    return int(join_outcomes(outcomes))
