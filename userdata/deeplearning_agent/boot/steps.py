"""Steps that prepare every node; one log line a step."""

import logging
import shlex
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from deeplearning_agent.boot.efa_software import prepare_efa
from deeplearning_agent.boot.instance_store import prepare_local_disk
from deeplearning_agent.boot.job_limits import prepare_job_limits
from deeplearning_agent.boot.mounts import mount_file_systems
from deeplearning_agent.coordination.state_store import report_phase
from deeplearning_agent.membership.host_files import write_host_files
from deeplearning_agent.telemetry.log_records import LogFields
from deeplearning_agent.workload.interruption_notice import clear_notice
from deeplearning_agent.workload.services import start_provisioning
from deeplearning_agent.workload.user_scripts import run_setup_script
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.log_record import SECONDS, STEP
from deeplearning_contract.membership import Member, training_members, worker_gpu_count
from deeplearning_contract.names import AGENT_DIRECTORY, EFS_MOUNT_VARIABLE, WORKER_GPU_COUNT_VARIABLE
from deeplearning_node.atomic_file import write_file
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.contract_variables import contract_variables, write_environment
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.failure import StageFailure, describe_failure
from deeplearning_node.health.gpus import count_gpus, turn_on_persistence
from deeplearning_node.health.node_check import check_health
from deeplearning_node.node import Node
from deeplearning_node.node_facts import COMMAND_FILE, NodeFacts, installed_generation
from deeplearning_node.packages import install_packages
from deeplearning_node.ssh import authorize, read_host_key, wait_for_sshd, write_known_hosts

T = TypeVar("T")
LOG = logging.getLogger(__name__)

# Isolated: no PYTHONPATH, user site or current folder changes what runs, and children inherit no path of ours.
_COMMAND = (
    f"import sys; sys.path.insert(0, {AGENT_DIRECTORY!r}); from {{module}} import main; sys.exit(main(sys.argv[1:]))"
)


def prepare_node(node: Node, clients: AwsClients, deadline: Deadline) -> Member:
    """Prepare a node to join, on its first boot or a later one; StageFailure when a step fails."""
    started = node.clock.read()
    clear_notice(node)  # It may come from the image, or from an earlier boot.

    def run(name: str, action: Callable[[], T]) -> T:
        if deadline.is_over:
            raise StageFailure("the set-up time is over", "allow more time", stage=name)
        return run_stage(node.clock, name, action)

    run("wait for credentials", lambda: clients.wait_for_credentials(deadline))
    run("install packages", lambda: install_packages(node, deadline))
    run("prepare EFA", lambda: prepare_efa(node, deadline))
    run("prepare the instance store", lambda: prepare_local_disk(node, deadline))
    run("mount the file system", lambda: mount_file_systems(node, deadline))
    run("prepare the limits of jobs", lambda: prepare_job_limits(node))
    run("turn on the GPUs' persistence mode", lambda: turn_on_persistence(node))
    gpu_count = run("count GPUs", lambda: count_gpus(node))
    # Fewer GPUs than the type has is a warning above; the master compares the node with its peers.
    run("check the node's health", lambda: check_health(node, fewest_gpus=gpu_count))
    run("install the command", lambda: install_command(node))
    run("start provisioning", lambda: start_provisioning(node))
    host_key = run("make the SSH identity", lambda: read_host_key(node))
    run("wait for sshd", lambda: wait_for_sshd(node, host_key, deadline))
    variables = {
        EFS_MOUNT_VARIABLE: node.settings.file_system.mount_point,
        WORKER_GPU_COUNT_VARIABLE: str(gpu_count),
    }
    run("run the set-up script", lambda: run_setup_script(node, clients, variables, deadline))
    if not installed_generation(node):  # On a member this is a restart of the agent, not a boot.
        report_phase("boot", node.clock.read() - started)
    trains = not (node.is_master and node.settings.needs.has_head_node)
    return Member(node.identity.instance_id, node.identity.address, gpu_count, host_key, trains)


def install_command(node: Node) -> None:
    """
    Install /usr/local/bin/deeplearning, which runs the agent's interpreter, and the facts that it needs.

    Idempotent: the same node writes the same bytes.
    """
    NodeFacts.of(node).write(node.root)
    write_command(node, COMMAND_FILE, "deeplearning_command.main")


def write_command(node: Node, path: str, module: str) -> None:
    """Write a command that runs `main` of a module of the agent's folder."""
    start = f'exec {shlex.quote(sys.executable)} -I -B -c {shlex.quote(_COMMAND.format(module=module))} "$@"'
    write_file(node.path(path), f"#!/bin/sh\n# Written by deeplearning-agent.\n{start}\n", 0o755)


def install_membership(
    node: Node, state: ClusterState, own: Member, variables: Mapping[str, str] = MappingProxyType({})
) -> None:
    """
    Install a published membership on this node, `own`. Idempotent: the same state writes the same bytes.

    `variables` are set beside those of the contract.
    """

    def install() -> None:
        authorize(node, state.user_key)
        write_known_hosts(node, state.members)
        counts = len(training_members(state.members)), worker_gpu_count(state.members, own)
        write_environment(node, {**variables, **contract_variables(node, *counts)})
        write_host_files(node, state)

    run_stage(node.clock, f"install generation {state.generation}", install, generation=state.generation)


def run_stage(clock: Clock, name: str, action: Callable[[], T], *, generation: int | None = None) -> T:
    """
    Run one step and log its duration; any error becomes a StageFailure that names the step.

    `generation` is the generation that the node has from then on; None when it does not change.
    """
    started = clock.read()
    try:
        result = action()
    except Exception as error:
        raise describe_failure(error, name) from error
    seconds = clock.read() - started
    fields = LogFields(details={STEP: name, SECONDS: round(seconds, 3)}, generation=generation)
    LOG.info("%s: done in %.1f s", name, seconds, extra=fields.extra)
    return result
