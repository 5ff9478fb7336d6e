"""Service of a node of EMR: announces it, installs memberships, and on the primary node decides them."""

import logging
from typing import NoReturn

from deeplearning_agent.workload.interruption_notice import clear_notice, write_notice
from deeplearning_contract.membership import Member
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.emr.activity import BusyFile, find_activity
from deeplearning_member.emr.stop_time import plan_notice
from deeplearning_member.membership_service import FRESH_SECONDS, MembershipService
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.findings import clean
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

LOG = logging.getLogger(__name__)
RENEW_SECONDS = 10
"""Interval at which a node renews its announcement."""


class MemberService(MembershipService):
    """Service of one node."""

    def __init__(self, node: Node, folder: ClusterFolder, member: Member) -> None:
        """Bind the node as it describes itself; nothing is written yet."""
        super().__init__(node, folder, member)
        self._busy_file, self._is_busy = BusyFile(node), False

    def run(self) -> NoReturn:
        """Follow the cluster for ever; what fails is logged and retried."""
        while True:
            try:
                self.follow()
            except (OSError, ValueError, StageFailure, ProgramError) as error:  # ContractError is a ValueError.
                LOG.warning("could not follow the cluster; retrying: %s", error)
            self._node.clock.wait(RENEW_SECONDS)

    def follow(self) -> None:
        """
        Follow the membership once.

        Effects: as `follow_membership`; /opt/deeplearning/notice before the cluster stops; on the primary node the file
        that keeps EMR from ending the cluster as idle.
        """
        activity = find_activity(self._node)
        try:
            state = self.follow_membership(activity, plan_notice(self._node) if self._node.is_master else "")
            if state and state.notice:
                write_notice(self._node, state.notice)
            else:
                clear_notice(self._node)
        finally:  # A file system that does not respond hides no job of this node.
            if self._node.is_master:
                self._report_activity(activity)

    def _report_activity(self, activity: str) -> None:
        """Report the activity of any node to EMR, this one's own included."""
        fresh = self._node.clock.read() - FRESH_SECONDS
        seen = {name: each.activity for name, (each, renewed) in self._seen.items() if renewed >= fresh}
        seen[self._member.instance_id] = activity
        busy = next((f"{name} {clean(found)}" for name, found in seen.items() if found), "")
        if busy:
            self._busy_file.touch()
        if bool(busy) != self._is_busy:
            LOG.info("the cluster is %s", f"busy: {busy}" if busy else "idle")
        self._is_busy = bool(busy)
