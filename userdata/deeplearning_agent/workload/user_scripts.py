"""Fetches the user's own scripts, and runs the one that sets nodes up: as root on every node, once an instance."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

from deeplearning_contract.names import STATE_DIRECTORY
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_node.atomic_file import write_file
from deeplearning_node.aws_clients import AwsClients, call_until
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.programs import KEPT_OUTPUT, ProgramError

LOG = logging.getLogger(__name__)
SETUP_LOG = "/var/log/deeplearning-setup-script.log"
FETCH_SECONDS = 300


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
    Fetch the user's run script before the cluster forms, so that a wrong one fails while the stack still waits.

    A restart does without S3 if the script is there.
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
