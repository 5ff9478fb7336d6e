"""`deeplearning provision`: what the service runs on every node to bring the data and the environment of jobs."""

import argparse
import importlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.remote.nodes import find_user, read_facts
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import ENVIRONMENT_STEP, NOT_STARTED, name_steps
from deeplearning_provision.status import Status
from deeplearning_provision.steps import Outcome, join_outcomes, settle_step

if TYPE_CHECKING:
    from collections.abc import Callable

    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

DESCRIPTION = """
Bring what the cluster's jobs need to this node: data from S3 and the software environment. The service
deeplearning-provision runs it after the shared file system is mounted; it does nothing for what is already there.
"""
EPILOG = "exit status: 0 everything is there, 1 something failed for good, 2 refused, 75 something may come right later"


def add_provision(subcommands: "Subcommands") -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser(
        "provision", help="bring data and environment to this node", description=DESCRIPTION, epilog=EPILOG
    )
    parser.set_defaults(run=run_provision)


def run_provision(_: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: The node is not prepared, or the user is not the login user.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    facts = read_facts(root)
    check_user(facts)
    clock = Clock()
    status = Status(root, clock)
    for name in name_steps(facts.needs):
        status.wait(name, NOT_STARTED)
    return provision(facts, status, root, programs, clock)


def check_user(facts: NodeFacts) -> None:
    """
    Refuse every user but the login user, to whom all that is provisioned belongs.

    Raises:
        RefusedError: Somebody else runs it, or the node has no such user.
    """
    try:
        user = find_user(facts.login_user)
    except LookupError as error:
        raise RefusedError(f"the node must have the user {facts.login_user}; correct login_user") from error
    if os.geteuid() != user.user_id:
        raise RefusedError(f"the user must be {user.name}; put runuser -u {user.name} -- before the command")


def provision(facts: NodeFacts, status: Status, root: Path, programs: Programs, clock: Clock) -> int:
    """
    Bring data and environment at the same time.

    Returns:
        The exit status.
    """

    # Imported here, because they bring what most commands never need.
    def stage_data() -> Outcome:
        module = importlib.import_module("deeplearning_provision.data.sources")
        outcome: Outcome = module.stage_all(facts, status, root, programs, clock)
        return outcome

    def make_environment() -> Outcome:
        module = importlib.import_module("deeplearning_provision.environments.kinds")

        def build_or_install() -> str:
            module.build_or_install(facts, status, root, programs, clock)
            return status.get(ENVIRONMENT_STEP).detail

        return settle_step(status, ENVIRONMENT_STEP, build_or_install, clock)

    parts: list[Callable[[], Outcome]] = [stage_data] if facts.needs.data else []
    parts += [make_environment] if facts.needs.environment else []
    with ThreadPoolExecutor(2, "provision") as pool:
        outcomes = [future.result() for future in [pool.submit(part) for part in parts]]
    return int(join_outcomes(outcomes))
