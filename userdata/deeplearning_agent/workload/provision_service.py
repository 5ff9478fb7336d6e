"""Starts the service that brings data and software environment to the node, beside the formation."""

import os

from deeplearning_contract.names import DATA_DIRECTORY, ENVIRONMENT_DIRECTORY, PROVISION_FILE, PROVISION_SERVICE
from deeplearning_node.atomic_file import write_file
from deeplearning_node.node import Node
from deeplearning_node.node_facts import COMMAND_FILE

START_SECONDS = 60
FINAL_FAILURE = 1
"""The status of a failure that trying again cannot mend; any other makes the service try again."""

_UNIT = """[Unit]
Description=Brings data and software environment of training jobs to this node
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
ExecStart={command} provision
Restart=on-failure
RestartSec=30
RestartPreventExitStatus={final}
"""


def start_provisioning(node: Node) -> None:
    """
    Start the service that provisions this node, if the settings ask for anything; does not wait for it.

    Effects: folders of the login user's below /opt/deeplearning; the unit in /etc/systemd/system, which the agent
    starts at each boot.
    """
    if not needs_provisioning(node):
        return
    user = node.login_user()
    for folder in (DATA_DIRECTORY, ENVIRONMENT_DIRECTORY, PROVISION_FILE.rpartition("/")[0]):
        path = node.path(folder)
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, *user.owner)
    unit = _UNIT.format(user=user.name, command=COMMAND_FILE, final=FINAL_FAILURE)
    write_file(node.path(f"/etc/systemd/system/{PROVISION_SERVICE}"), unit)
    node.programs.run(["systemctl", "daemon-reload"], timeout_seconds=START_SECONDS)
    node.programs.run(["systemctl", "start", "--no-block", PROVISION_SERVICE], timeout_seconds=START_SECONDS)


def needs_provisioning(node: Node) -> bool:
    """Return whether the user asked for data or an environment."""
    needs = node.settings.needs
    return bool(needs.data or needs.environment)
