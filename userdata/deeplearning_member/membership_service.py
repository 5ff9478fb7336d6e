"""Membership of a cluster whose members come and go: each announces itself, and the master decides who belongs."""

import logging
from collections.abc import Mapping
from functools import cached_property
from ipaddress import IPv4Address
from types import MappingProxyType

from deeplearning_agent.boot.steps import install_membership
from deeplearning_agent.membership.host_files import write_ready_hosts
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member, training_members
from deeplearning_member.cluster_folder import Announcement, ClusterFolder
from deeplearning_node.node import Node
from deeplearning_node.node_facts import installed_generation
from deeplearning_node.ssh import make_user_key

LOG = logging.getLogger(__name__)
FRESH_SECONDS = 90
"""
Time without a renewal after which a node is no longer a member.

It is more than a renewal and the 60 s for which an NFS client may use cached attributes (nfs(5), acregmax, acdirmax).
"""


class MembershipService:
    """
    Membership of one node.

    Attributes:
        installed: Generation that the node has installed; 0 for none.
    """

    def __init__(
        self, node: Node, folder: ClusterFolder, member: Member, variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """
        Bind the node as it describes itself; nothing is written yet.

        Args:
            node: This node.
            folder: Folder of its cluster.
            member: Its description.
            variables: Variables of its logins, beside those of the contract. Default: none.
        """
        self._node, self._folder, self._member, self._variables = node, folder, member, variables
        self.installed = 0
        self._seen: dict[str, tuple[Announcement, float]] = {}
        """Last announcement of each other node, and the time on this node's clock at which it was renewed."""

    def follow_membership(self, activity: str = "", notice: str = "") -> ClusterState | None:
        """
        Install the current membership if it is new, and renew the announcement of this node; return the membership.

        Effects: as `install_membership`; on the master the membership and /opt/deeplearning/ready_hosts.

        Args:
            activity: Activity of the node. Default: none.
            notice: On the master, notice that the cluster stops. Default: none.
        """
        self._folder.check()
        state = self._decide(notice) if self._node.is_master else self._folder.read_membership()
        try:
            if state and state.has_member(self._member.instance_id) and state.generation > self.installed:
                install_membership(self._node, state, self._member, self._variables)
                self.installed = state.generation
        finally:  # A node that cannot install a membership stays, and the master names it.
            self._folder.announce(self._member, self.installed, activity)
        if state and self._node.is_master:
            ready = self.find_ready(state)
            write_ready_hosts(self._node, [m for m in training_members(state.members) if m.instance_id in ready])
        return state

    def find_ready(self, state: ClusterState) -> set[str]:
        """Return the nodes that have installed a membership, on the master."""
        ready = {name for name, (announcement, _) in self._seen.items() if announcement.has_installed(state)}
        return ready | ({self._member.instance_id} if self.installed == state.generation else set())

    @cached_property
    def _user_key(self) -> str:
        return make_user_key(self._node)

    def _decide(self, notice: str) -> ClusterState:
        """Return the membership of all nodes that renew their announcements, and publish it if it has changed."""
        node, state = self._node, self._folder.read_membership()
        members = (self._member, *self._find_others())
        if state and (state.members, state.user_key) == (members, self._user_key):
            if state.notice != notice:
                state = state.advance(state.phase, notice=notice)
                self._folder.write_membership(state)
            return state
        # The folder may have been lost, or a file of it replaced by an earlier one.
        installed = [announcement.generation for announcement, _ in self._seen.values()]
        generation = max(state.generation if state else 0, installed_generation(node), *installed) + 1
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
        self._look()
        # EC2 may give the address of a node that was terminated to its replacement: the newer one has it.
        seen = sorted(self._seen.values(), key=lambda entry: entry[1])
        by_address = {announcement.member.address: announcement.member for announcement, _ in seen}
        by_address.pop(self._member.address, None)
        return sorted(by_address.values(), key=lambda member: IPv4Address(member.address))

    def _look(self) -> None:
        """Read the announcements of the others, and forget those that are not renewed any more."""
        now = self._node.clock.read()
        announced = self._folder.read_announcements()
        for name, announcement in announced.items():
            is_renewed = name not in self._seen or self._seen[name][0] != announcement
            if name != self._member.instance_id and is_renewed:
                self._seen[name] = announcement, now
        for name in [name for name, (_, renewed) in self._seen.items() if now - renewed > FRESH_SECONDS]:
            LOG.warning("%s has not renewed its announcement for %d s: it leaves", name, FRESH_SECONDS)
            del self._seen[name]
            self._folder.forget(name)
