"""
Services of the login user beside the agent: one provisions the node, one ends an idle cluster.

Each is a subcommand of `deeplearning`; its failure does not affect the membership.
"""

import logging
import os
from typing import TYPE_CHECKING

from deeplearning_contract.names import (
    DATA_DIRECTORY,
    ENVIRONMENT_DIRECTORY,
    IDLE_SERVICE,
    PROVISION_FILE,
    PROVISION_SERVICE,
)
from deeplearning_node.atomic_file import write_file
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.node_facts import COMMAND_FILE
from deeplearning_node.programs import ProgramError

if TYPE_CHECKING:
    from deeplearning_node.deadline import Deadline

LOG = logging.getLogger(__name__)
START_SECONDS = 60
RETRY_SECONDS = 300
RESTART_PROVISIONING = """RestartSec=30
RestartPreventExitStatus=1
"""
"""Status 1 is a failure that a retry cannot repair."""
_UNIT = """[Unit]
Description={description}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
ExecStart={command}
Restart=on-failure
{restart}"""


def start_service(node: Node, name: str, description: str, subcommand: str, restart: str) -> None:
    """
    Write the unit of a subcommand of `deeplearning` to /etc/systemd/system, and start it without waiting for it.

    The unit is not enabled: the agent starts it at each boot.
    """
    command = f"{COMMAND_FILE} {subcommand}"
    unit = _UNIT.format(description=description, user=node.login_user().name, command=command, restart=restart)
    write_file(node.path(f"/etc/systemd/system/{name}"), unit)
    _systemctl(node, "daemon-reload")
    _systemctl(node, "start", "--no-block", name)


def start_provisioning(node: Node) -> None:
    """
    Start the service that provisions this node, if the settings require it, without waiting for it.

    Effects: folders of the login user's below /opt/deeplearning; the unit in /etc/systemd/system.
    """
    if not needs_provisioning(node):
        return
    for folder in (DATA_DIRECTORY, ENVIRONMENT_DIRECTORY, PROVISION_FILE.rpartition("/")[0]):
        path = node.path(folder)
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, *node.login_user().owner)
    description = "Installs data and software environment of training jobs on this node"
    start_service(node, PROVISION_SERVICE, description, "provision", RESTART_PROVISIONING)


def needs_provisioning(node: Node) -> bool:
    """Return whether the settings contain data or an environment."""
    needs = node.settings.needs
    return bool(needs.data or needs.environment)


class IdleService:
    """Service on the master that ends an idle cluster; each new master starts to count from zero."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_started: bool | None = None
        """None until this run of the agent has started or stopped it."""
        self._retry: Deadline | None = None

    def ensure(self) -> None:
        """Start the idle service with its unit in /etc/systemd/system, unless it runs or the settings disable it."""
        seconds = self._node.settings.stop_when_idle_seconds
        if not seconds or self._is_started or not (self._retry is None or self._retry.is_over):
            return
        description, subcommand = "Ends this cluster once it has been idle", f"stop-when-idle --seconds {seconds}"
        try:
            start_service(self._node, IDLE_SERVICE, description, subcommand, "RestartSec=60\n")
        except (OSError, ProgramError, StageFailure) as error:
            LOG.warning("could not start the idle service; retrying: %s", error)
            self._retry = self._node.limit(RETRY_SECONDS)
            return
        LOG.info("the cluster ends once it has been idle for %g minutes", seconds / 60)
        self._is_started = True

    def stop(self) -> None:
        """Stop the service, since another master has it now; raises nothing."""
        if not self._node.settings.stop_when_idle_seconds or self._is_started is False:
            return
        try:
            _systemctl(self._node, "stop", IDLE_SERVICE)
        except ProgramError as error:
            LOG.warning("could not stop the idle service: %s", error)
            return
        self._is_started = False


def _systemctl(node: Node, *arguments: str) -> None:
    node.programs.run(["systemctl", *arguments], timeout_seconds=START_SECONDS)
