"""
The service that ends an idle cluster, beside the agent: whatever becomes of it, the membership is not disturbed.

It is the command `deeplearning stop-when-idle`, on the master of a formed cluster. The agent starts it, again after
each boot; the next master's begins to count anew.
"""

import logging
from typing import TYPE_CHECKING

from deeplearning_contract.names import IDLE_SERVICE
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
_UNIT = """[Unit]
Description=Ends this cluster once it has been idle
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
ExecStart={command} stop-when-idle --seconds {seconds}
Restart=on-failure
RestartSec=60
"""


class IdleService:
    """The service on one master."""

    def __init__(self, node: Node) -> None:
        """Bind the node; nothing is started yet."""
        self._node = node
        self._is_started: bool | None = None
        """None while this run of the agent does not know."""
        self._retry: Deadline | None = None

    def ensure(self) -> None:
        """
        Start the idle service and its unit in /etc/systemd/system, unless it runs or is not wanted; raises nothing.
        """
        seconds = self._node.settings.stop_when_idle_seconds
        if not seconds or self._is_started or not (self._retry is None or self._retry.is_over):
            return
        try:
            unit = _UNIT.format(user=self._node.login_user().name, command=COMMAND_FILE, seconds=seconds)
            write_file(self._node.path(f"/etc/systemd/system/{IDLE_SERVICE}"), unit)
            self._systemctl("daemon-reload")
            self._systemctl("start", "--no-block", IDLE_SERVICE)
        except (OSError, ProgramError, StageFailure) as error:
            LOG.warning("the cluster is not watched for idleness, will try again: %s", error)
            self._retry = self._node.limit(RETRY_SECONDS)
            return
        LOG.info("the cluster ends once it has been idle for %g minutes", seconds / 60)
        self._is_started = True

    def stop(self) -> None:
        """End the service, because another master watches the cluster now; raises nothing."""
        if not self._node.settings.stop_when_idle_seconds or self._is_started is False:
            return
        try:
            self._systemctl("stop", IDLE_SERVICE)
        except ProgramError as error:
            LOG.warning("the idle service goes on: %s", error)
            return
        self._is_started = False

    def _systemctl(self, *arguments: str) -> None:
        self._node.programs.run(["systemctl", *arguments], timeout_seconds=START_SECONDS)
