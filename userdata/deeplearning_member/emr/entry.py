"""
Entry point on EMR: `python -m deeplearning_member`, and on a prepared node the command `deeplearning-member`.

    prepare   prepare this node and start its service; the bootstrap action waits for it
    serve     run the service
    wait      on the primary node, wait until every node has installed the membership
"""

import json
import logging
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from deeplearning_agent.boot.steps import prepare_node, run_stage, write_command
from deeplearning_agent.telemetry.log_records import start_log
from deeplearning_contract.document import parse_object
from deeplearning_contract.membership import Member
from deeplearning_contract.names import AGENT_DIRECTORY, AGENT_LOG, AGENT_SERVICE, SETTINGS_FILE
from deeplearning_contract.settings import NodeSettings
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.emr.formation import wait_for_members
from deeplearning_member.emr.job_flow import JobFlow
from deeplearning_member.emr.service import MemberService
from deeplearning_member.emr.stop_time import STOP_TIMER, UNITS, write_stop_timer
from deeplearning_node.atomic_file import write_file
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.deadline import Clock
from deeplearning_node.failure import StageFailure, describe_failure
from deeplearning_node.instance_metadata import read_identity
from deeplearning_node.node import Node
from deeplearning_node.programs import Programs, system_path

LOG = logging.getLogger("deeplearning_member")
COMMAND_FILE = "/usr/local/bin/deeplearning-member"
SERVICE = "deeplearning-member.service"
START_SECONDS = 60
WAIT_SECONDS = 600
_UNIT = f"""[Unit]
Description=Announces this node to its deep learning cluster and follows the membership
Wants=network-online.target
After=network-online.target remote-fs.target
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory={AGENT_DIRECTORY}
Environment=PYTHONUNBUFFERED=1
ExecStart={{python}} -m deeplearning_member serve
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
# Health checks and their remedies name the agent's service, whose part this one has on EMR.
Alias={AGENT_SERVICE}
"""


def main(arguments: list[str], root: Path = Path("/")) -> int:
    """
    Run a command; a failure is the last line of standard error.

    Returns the exit status: 1 for a failure, 2 for wrong arguments.
    """
    command = _COMMANDS.get(" ".join(arguments))
    if command is None:
        return _fail(f"the argument must be one of {', '.join(_COMMANDS)}, got {arguments}", 2)
    try:
        flow = JobFlow.read(root)
        return command(open_node(root, flow), flow)
    except Exception as error:  # noqa: BLE001 - the reason of any failure must be the last line
        return _fail(str(describe_failure(error, arguments[0]).reason(os.uname().nodename)))


def open_node(root: Path, flow: JobFlow) -> Node:
    """Return this node, with the role that EMR gave it; StageFailure without settings or instance metadata."""
    path = root / SETTINGS_FILE.lstrip("/")
    try:
        settings = NodeSettings.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ContractError is a ValueError.
        remedy = "run the command as root, after the bootstrap action"
        raise StageFailure(f"{path}: {error}", remedy, stage="read the settings") from error
    clock, programs = Clock(), Programs(system_path(os.environ.get("PATH", "")))
    return Node(replace(settings, role=flow.role), read_identity(clock), root, programs, clock)


def prepare(node: Node, _: JobFlow) -> int:
    """
    Prepare the node with the agent's steps, and start its service, on the primary node also the timer of `stop_after`.

    Effects: as `prepare_node`; the command `deeplearning-member`, a file of this instance, and the units.
    """
    log = node.path(AGENT_LOG)
    start_log(log)
    # Some images hide /var/log, where the daemons of EMR keep their logs.
    log.parent.chmod(log.parent.stat().st_mode | stat.S_IXOTH)
    LOG.info("preparing %s of cluster %s", node, node.settings.cluster)
    member = prepare_node(node, AwsClients(node.settings.region), node.limit(node.settings.setup_seconds))
    write_file(_member_file(node), json.dumps(member.to_document()) + "\n")
    run_stage(node.clock, "start the service", lambda: start_service(node))
    return 0


def start_service(node: Node) -> None:
    """Write the command and the units, and start the service, and the timer of `stop_after`, now and at each boot."""
    write_command(node, COMMAND_FILE, "deeplearning_member.emr.entry")
    write_file(node.path(f"{UNITS}/{SERVICE}"), _UNIT.format(python=sys.executable))
    units = [SERVICE]
    if node.is_master and (seconds := node.settings.stop_after_seconds):
        write_stop_timer(node, seconds)
        units.append(STOP_TIMER)
    for words in (["daemon-reload"], ["enable", *units], ["restart", *units]):
        node.programs.run(["systemctl", *words], timeout_seconds=START_SECONDS)


def serve(node: Node, flow: JobFlow) -> int:
    """Run the service of a prepared node; returns only when `prepare` has not succeeded on this instance."""
    start_log(node.path(AGENT_LOG))
    try:
        text = _member_file(node).read_text(encoding="utf-8")
        member = Member.from_document(parse_object(text, "member"))
    except (OSError, ValueError) as error:  # ContractError is a ValueError.
        raise StageFailure(f"{error}", "run deeplearning-member prepare", stage="read its description") from error
    LOG.info("serving %s of cluster %s", node, node.settings.cluster)
    MemberService(node, ClusterFolder(node, flow.cluster_id), member).run()


def wait(node: Node, flow: JobFlow) -> int:
    """Wait for the cluster. EMR starts steps when every node is prepared, so that little is left to wait for."""
    if not node.is_master:
        return _fail(f"wait must run on the primary node, got {node}; run it as a step")
    folder = ClusterFolder(node, flow.cluster_id)
    limit = node.limit(min(WAIT_SECONDS, node.settings.setup_seconds))
    missing = wait_for_members(folder, flow.node_count, limit)
    return _fail(missing) if missing else 0


def _fail(reason: str, status: int = 1) -> int:
    print(f"deeplearning-member: {reason}", file=sys.stderr)  # noqa: T201 - EMR keeps the standard error
    return status


def _member_file(node: Node) -> Path:
    return node.instance_file("member.json")


_COMMANDS: dict[str, Callable[[Node, JobFlow], int]] = {"prepare": prepare, "serve": serve, "wait": wait}
