"""
Scripts of the user: the set-up script, and the run script on the master of a formed cluster.

The set-up script runs as root on every node, once an instance; the run script once, and again on each new master.
"""

import contextlib
import hashlib
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from deeplearning_agent.telemetry.log_excerpts import log_tail
from deeplearning_agent.telemetry.log_records import LogFields
from deeplearning_agent.workload.services import needs_provisioning
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.membership import Member, training_members, worker_gpu_count
from deeplearning_contract.names import STATE_DIRECTORY
from deeplearning_contract.reason import Reason
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_node.atomic_file import write_file
from deeplearning_node.aws_clients import AwsClients, call_until
from deeplearning_node.contract_variables import contract_variables
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.node_facts import COMMAND_FILE, RUN_SCRIPT_STARTED, RUN_SCRIPT_STATUS, InstalledMembership
from deeplearning_node.programs import KEPT_OUTPUT, ProgramError

LOG = logging.getLogger(__name__)
SETUP_LOG = "/var/log/deeplearning-setup-script.log"
FETCH_SECONDS = 300
RUN_LOG = "/var/log/deeplearning-run-script.log"
SCRIPT_STATUS = "status"
_WRAPPER = (
    'set -C; echo $$ >"$1" || exit; status=$2; shift 2; "$@"; echo $? >|"$status.new"; mv "$status.new" "$status"'
)
"""
The shell that creates the first file runs the script: an agent that dies meanwhile neither loses it nor starts two.

The file contains the id of the shell, which is also that of its process group.
"""


def run_setup_script(node: Node, clients: AwsClients, variables: Mapping[str, str], deadline: Deadline) -> None:
    """
    Run the user's set-up script as root, unless it has succeeded on this instance before.

    Effects: the script below /opt/deeplearning/scripts; its output in /var/log/deeplearning-setup-script.log.
    """
    script = node.settings.setup_script
    done = node.instance_file("setup-script-succeeded")
    if script is None or done.exists():
        return
    path = fetch_script(node, clients, script, "setup", deadline)
    environment = {"HOME": "/root", "USER": "root", **variables}
    remedy = f"read {SETUP_LOG} on the node and correct the script"
    try:
        output = node.programs.run([str(path)], timeout_seconds=max(1.0, deadline.remaining), environment=environment)
    except ProgramError as error:
        write_file(node.path(SETUP_LOG), error.output, 0o640)
        raise StageFailure(f"the set-up script failed: {error}", remedy, output=error.output) from error
    write_file(node.path(SETUP_LOG), output[-100 * KEPT_OUTPUT :], 0o640)
    write_file(done, f"{script.sha256}\n")


def fetch_run_script(node: Node, clients: AwsClients, deadline: Deadline) -> None:
    """
    Fetch the user's run script before the cluster forms, so that a wrong one fails while the stack still waits.

    A restart does not need S3 when the script was fetched before.
    """
    script, path = node.settings.run_script, script_path(node, "run")
    if script is None or (path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == script.sha256):
        return
    fetch_script(node, clients, script, "run", deadline)


def script_path(node: Node, name: str) -> Path:
    return node.path(f"{STATE_DIRECTORY}/scripts/{name}")


def fetch_script(node: Node, clients: AwsClients, script: ScriptSettings, name: str, deadline: Deadline) -> Path:
    """Fetch a script from S3, check its digest, and return its path."""
    what = f"s3://{script.bucket}/{script.key}"

    def fetch() -> bytes:
        body: bytes = clients.s3.get_object(Bucket=script.bucket, Key=script.key)["Body"].read()
        return body

    data = call_until(deadline.at_most(FETCH_SECONDS), fetch)
    found = hashlib.sha256(data).hexdigest()
    if found != script.sha256:
        raise StageFailure(f"sha256 of {what} must be {script.sha256}, got {found}", "deploy again")
    if not data.startswith(b"#!"):
        raise StageFailure(f"{what} must begin with #! and its interpreter", "add the line #!/bin/bash")
    path = script_path(node, name)
    write_file(path, data.decode("utf-8", "surrogateescape"), 0o755)
    return path


class RunScript:
    """
    Run script of one master.

    It runs beside the agent and outlives a restart of the agent. A shell of its own writes its exit status, so that no
    restart misses it.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._status_file = node.instance_file(RUN_SCRIPT_STATUS)
        self._told_file = node.instance_file("run-script-end-told")
        self._is_told = False
        self._is_started = False

    @property
    def is_due(self) -> bool:
        """True for a script that was not started on this boot and has never succeeded on this instance."""
        if self._node.settings.run_script is None or self._is_started:
            return False
        return not self.has_ended_well and not self._node.path(RUN_SCRIPT_STARTED).exists()

    @property
    def has_ended_well(self) -> bool:
        """True after it ended with status 0; logs each end once."""
        if self._node.settings.run_script is None or not self._status_file.exists():
            return False
        status = self._status_file.read_text().strip()
        if not self._is_told:
            self._log_end(status)
            self._is_told = True
        return status == "0"

    def _log_end(self, status: str) -> None:
        """Log the end, and publish it once when the script failed."""
        fields = LogFields(details={SCRIPT_STATUS: status}, is_urgent=True)
        is_news = not self._told_file.exists()
        if is_news and status != "0":  # The write of the state record reports status 0.
            log_tail(self._node, RUN_LOG)
            fields = replace(fields, event=finish_event(self._node, f"the run script ended with status {status}"))
        LOG.info("the run script ended with status %s", status, extra=fields.extra)
        if is_news:
            with contextlib.suppress(OSError):  # On a full disk it is reported again after a restart.
                write_file(self._told_file, f"{status}\n")

    def start(self, members: tuple[Member, ...], own: Member) -> None:
        """Start the fetched script as the login user, with its output in /var/log/deeplearning-run-script.log."""
        node = self._node
        user = node.login_user()
        variables = contract_variables(node, len(training_members(members)), worker_gpu_count(members, own))
        log = node.path(RUN_LOG)
        log.parent.mkdir(parents=True, exist_ok=True)
        self._status_file.parent.mkdir(parents=True, exist_ok=True)
        self._status_file.unlink(missing_ok=True)
        self._told_file.unlink(missing_ok=True)
        node.path(RUN_SCRIPT_STARTED).parent.mkdir(parents=True, exist_ok=True)
        command = ["runuser", "-u", user.name, "--", *self._wait(), str(script_path(node, "run"))]
        with log.open("ab") as output:
            node.programs.start(
                ["sh", "-c", _WRAPPER, "sh", str(node.path(RUN_SCRIPT_STARTED)), str(self._status_file), *command],
                environment={"HOME": user.home, "USER": user.name, "LOGNAME": user.name, **variables},
                output=output.fileno(),
            )
        self._is_started = True

    def _wait(self) -> list[str]:
        """Return the command that waits for data and environment on every node before the script."""
        is_needed = needs_provisioning(self._node)
        return ["sh", "-c", f'{COMMAND_FILE} wait && exec "$0"'] if is_needed else []

    def stop(self) -> None:
        """End the script if it runs: another master runs it now, and two would write the same checkpoint."""
        if self._node.settings.run_script is None or self._status_file.exists():
            return
        try:
            group = int(self._node.path(RUN_SCRIPT_STARTED).read_text())
            os.killpg(group, signal.SIGTERM)
        except (OSError, ValueError):
            return
        LOG.warning("stopped the run script")


def finish_event(node: Node, result: str) -> ClusterEvent:
    """Return the event for the end of the cluster's work, or for its failure."""
    try:
        membership = InstalledMembership.read(node.root)
    except (OSError, ValueError):  # ContractError is a ValueError.
        membership = InstalledMembership()
    return ClusterEvent(
        kind=EventKind.FINISHED,
        cluster=node.settings.cluster,
        generation=membership.generation,
        nodes=len(membership.members),
        reason=Reason(result),
    )
