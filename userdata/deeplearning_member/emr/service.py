"""Service of a node: announces it, installs memberships, and on the primary node decides them."""

import logging
from functools import cached_property
from ipaddress import IPv4Address
from typing import NoReturn

from deeplearning_agent.boot.steps import install_membership
from deeplearning_agent.membership.host_files import write_ready_hosts
from deeplearning_agent.workload.interruption_notice import clear_notice, write_notice
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member, training_members
from deeplearning_member.cluster_folder import Announcement, ClusterFolder
from deeplearning_member.emr.activity import BusyFile, find_activity
from deeplearning_member.emr.stop_time import plan_notice
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.findings import clean
from deeplearning_node.node import Node
from deeplearning_node.node_facts import installed_generation
from deeplearning_node.programs import ProgramError
from deeplearning_node.ssh import make_user_key

LOG = logging.getLogger(__name__)
RENEW_SECONDS = 10
"""Interval at which a node renews its announcement."""
FRESH_SECONDS = 90
"""
Time without a renewal after which a node is no longer a member.

It is more than a renewal and the 60 s for which an NFS client may use cached attributes (nfs(5), acregmax, acdirmax).
"""


class MemberService:
    """Service of one node."""

    def __init__(self, node: Node, folder: ClusterFolder, member: Member) -> None:
        """Bind the node as it describes itself; nothing is written yet."""
        self._node, self._folder, self._member = node, folder, member
        self._installed = 0
        self._busy_file, self._is_busy = BusyFile(node), False
        self._seen: dict[str, tuple[Announcement, float]] = {}
        """Last announcement of each other node, and the time on this node's clock at which it was renewed."""

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
        Install the current membership if it is new, and renew the announcement of this node.

        Effects: as `install_membership`; /opt/deeplearning/notice before the cluster stops; on the primary node the
        membership, /opt/deeplearning/ready_hosts, and the file that keeps EMR from ending the cluster as idle.
        """
        activity = find_activity(self._node)
        try:
            self._follow(activity)
        finally:  # A file system that does not respond hides no job of this node.
            if self._node.is_master:
                self._report_activity(activity)

    def _follow(self, activity: str) -> None:
        self._folder.check()
        state = self._decide() if self._node.is_master else self._folder.read_membership()
        try:
            if state and state.has_member(self._member.instance_id) and state.generation > self._installed:
                install_membership(self._node, state, self._member)
                self._installed = state.generation
        finally:  # A node that cannot install a membership stays, and the step that waits names it.
            self._folder.announce(self._member, self._installed, activity)
        if state and state.notice:
            write_notice(self._node, state.notice)
        else:
            clear_notice(self._node)
        if state and self._node.is_master:
            ready = {name for name, (announcement, _) in self._seen.items() if announcement.has_installed(state)}
            ready.add(self._member.instance_id)
            write_ready_hosts(self._node, [m for m in training_members(state.members) if m.instance_id in ready])

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

    @cached_property
    def _user_key(self) -> str:
        return make_user_key(self._node)

    def _decide(self) -> ClusterState:
        """Return the membership of all nodes that renew their announcements, and publish it if it has changed."""
        node, state = self._node, self._folder.read_membership()
        members = (self._member, *self._find_others())
        notice = plan_notice(node)
        if state and (state.members, state.user_key) == (members, self._user_key):
            if state.notice != notice:
                state = state.advance(state.phase, notice=notice)
                self._folder.write_membership(state)
            return state
        # The folder may have been lost.
        generation = max(state.generation if state else 0, installed_generation(node)) + 1
        expected = tuple(member.instance_id for member in members)
        state = ClusterState(
            cluster=node.settings.cluster,
            revision=generation,
            generation=generation,
            phase=Phase.FORMED,
            requested=len(members),
            expected=expected,
            members=members,
            user_key=self._user_key,
            has_formed=True,
            notice=notice,
        )
        self._folder.write_membership(state)
        LOG.info("published generation %d with %d members: %s", generation, len(members), ", ".join(expected))
        return state

    def _find_others(self) -> list[Member]:
        """Return the other nodes that have renewed their announcements within `FRESH_SECONDS`, by address."""
        now = self._node.clock.read()
        for name, announcement in self._folder.read_announcements().items():
            is_renewed = name not in self._seen or self._seen[name][0] != announcement
            if name != self._member.instance_id and is_renewed:
                self._seen[name] = announcement, now
        for name in [name for name, (_, renewed) in self._seen.items() if now - renewed > FRESH_SECONDS]:
            LOG.warning("%s has not renewed its announcement for %d s: it leaves", name, FRESH_SECONDS)
            del self._seen[name]
            self._folder.forget(name)
        # EC2 may give the address of a node that was terminated to its replacement: the newer one has it.
        seen = sorted(self._seen.values(), key=lambda entry: entry[1])
        by_address = {announcement.member.address: announcement.member for announcement, _ in seen}
        by_address.pop(self._member.address, None)
        return sorted(by_address.values(), key=lambda member: IPv4Address(member.address))
