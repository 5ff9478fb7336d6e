"""The user's own scripts: set-up as root on every node, run as the login user on the master; each once an instance."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_agent.atomic_file import write_file
from deeplearning_agent.aws_clients import AwsClients, call_until
from deeplearning_agent.deadline import Deadline
from deeplearning_agent.failure import StageFailure
from deeplearning_agent.node import Node
from deeplearning_agent.programs import KEPT_OUTPUT, ProgramError
from deeplearning_contract.names import STATE_DIRECTORY
from deeplearning_contract.settings import ScriptSettings

if TYPE_CHECKING:
    import subprocess

LOG = logging.getLogger(__name__)
SETUP_LOG = "/var/log/deeplearning-setup-script.log"
RUN_LOG = "/var/log/deeplearning-run-script.log"
FETCH_SECONDS = 300


def run_setup_script(node: Node, clients: AwsClients, variables: Mapping[str, str], deadline: Deadline) -> None:
    """
    Run the user's set-up script as root, unless it has succeeded on this instance before.

    Effects: the script below /opt/deeplearning/scripts; its output in /var/log/deeplearning-setup-script.log.

    Raises:
        StageFailure: Its digest is wrong, its status is not 0, or the set-up time is over.
    """
    script = node.settings.setup_script
    done = node.instance_file("setup-script-succeeded")
    if script is None or done.exists():
        return
    path = fetch_script(node, clients, script, "setup", deadline)
    environment = {"HOME": "/root", "USER": "root", **variables}
    remedy = f"read {SETUP_LOG} on the node and mend the script"
    try:
        output = node.programs.run([str(path)], timeout_seconds=max(1.0, deadline.remaining), environment=environment)
    except ProgramError as error:
        write_file(node.path(SETUP_LOG), error.output, 0o640)
        raise StageFailure(f"the set-up script failed: {error}", remedy, output=error.output) from error
    write_file(node.path(SETUP_LOG), output[-100 * KEPT_OUTPUT :], 0o640)
    write_file(done, f"{script.sha256}\n")


def fetch_run_script(node: Node, clients: AwsClients, deadline: Deadline) -> None:
    """
    Fetch the user's run script before the cluster forms, so that a wrong one fails while somebody is told.

    Raises:
        StageFailure: It cannot be fetched, or is not what was deployed.
    """
    if node.settings.run_script is not None and not _started_file(node).exists():
        fetch_script(node, clients, node.settings.run_script, "run", deadline)


def start_run_script(node: Node, variables: Mapping[str, str]) -> "subprocess.Popen[bytes] | None":
    """
    Start the run script that was fetched, as the login user, unless it was started on this instance before.

    It goes on while the agent follows the cluster, and outlives a restart of the agent.

    Effects: its output in /var/log/deeplearning-run-script.log.

    Returns:
        The process, or None when there is nothing to start.

    Raises:
        ProgramError: It cannot be executed.
    """
    started = _started_file(node)
    if node.settings.run_script is None or started.exists():
        return None
    user = node.login_user()
    log = node.path(RUN_LOG)
    log.parent.mkdir(parents=True, exist_ok=True)
    write_file(started, f"{node.settings.run_script.sha256}\n")
    with log.open("ab") as output:
        return node.programs.start(
            ["runuser", "-u", user.name, "--", str(script_path(node, "run"))],
            environment={"HOME": user.home, "USER": user.name, "LOGNAME": user.name, **variables},
            output=output.fileno(),
        )


def script_path(node: Node, name: str) -> Path:
    """Return where a fetched script lies."""
    return node.path(f"{STATE_DIRECTORY}/scripts/{name}")


def fetch_script(node: Node, clients: AwsClients, script: ScriptSettings, name: str, deadline: Deadline) -> Path:
    """
    Fetch a script from S3 and check its digest.

    Returns:
        Where it lies, executable.

    Raises:
        StageFailure: It cannot be fetched, or is not what was deployed.
    """
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


def _started_file(node: Node) -> Path:
    return node.instance_file("run-script-started")
