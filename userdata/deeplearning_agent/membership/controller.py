"""Controller of the membership of a formed cluster: evicts lost nodes, admits new ones, requests replacements."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from deeplearning_agent.membership.host_files import write_ready_hosts
from deeplearning_agent.membership.member_monitor import MemberHealth, MemberMonitor, find_fewer_gpus
from deeplearning_agent.membership.replacements import Replacements
from deeplearning_agent.membership.transitions import Change, find_displaced
from deeplearning_agent.membership.worker_reports import WorkerReports
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.membership import Member, training_members
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_node.node import Node

if TYPE_CHECKING:
    from deeplearning_node.deadline import Deadline

LOG = logging.getLogger(__name__)
VACANT_SECONDS = 180
"""Silence of the current master after which a former master takes over again."""
DEAF_SECONDS = 900
"""The same while no node responds."""
ACKNOWLEDGE_SECONDS = 60
"""Time after which a member that has acknowledged no generation is evicted."""


class MembershipController:
    """Controller of the members of a cluster."""

    def __init__(self, node: Node, reports: WorkerReports, monitor: MemberMonitor, replacements: Replacements) -> None:
        self._node = node
        self._reports = reports
        self._monitor = monitor
        self._replacements = replacements
        self._acknowledge_by: dict[str, Deadline] = {}
        self._silent_since: float | None = None

    def plan_change(self, state: ClusterState) -> Change:
        """
        Compare the membership with the reports and the health of its nodes, and return the change.

        Effects: /opt/deeplearning/ready_hosts; requests for replacements that have become due.
        """
        workers = state.members[1:]
        found, newcomers = self.look(state)
        left = {worker.instance_id: reason for worker in workers if (reason := self._find_reason(worker, found))}
        short = self._find_fewer_gpus(workers, newcomers)
        joined = tuple(member for member in newcomers if member.instance_id not in short)
        left |= find_displaced(workers, joined)
        self.write_ready_hosts(state, left)
        self._replacements.mark_unhealthy(short)
        self._replacements.schedule([worker for worker in workers if worker.instance_id in left], found)
        self._replacements.submit_due({worker.instance_id for worker in workers} - set(left), found)
        return Change(left, joined)

    def look(self, state: ClusterState) -> tuple[MemberHealth, tuple[Member, ...]]:
        """
        Probe the members, the workers that joined, and those whose replacement is pending.

        Returns their health, and the workers that joined, respond and are no members.
        """
        found = self._monitor.probe(state.members, (*self._candidates(state), *self._replacements.awaited()))
        return found, self._newcomers(state, found.unanswered)

    def look_for_newcomers(self, state: ClusterState, own: Member) -> tuple[Member, ...]:
        """Return the workers that joined, respond and are no members, for a node that is not the master yet."""
        found = self._monitor.probe((own,), self._candidates(state))
        return self._newcomers(state, found.unanswered)

    def is_vacant(self, state: ClusterState, own: Member) -> bool:
        """
        Return whether the membership's master, another instance, has been silent for minutes.

        A node that got the address of a dead master responds there with a key of its own, which counts as silence.
        While no node responds the wait is longer, since this node may be the one that is cut off.
        """
        found = self._monitor.probe((own,), state.members)
        if state.master not in found.unanswered and not self._reports.has_lost_address(state.members[0]):
            self._silent_since = None
            return False
        now = self._node.clock.read()
        self._silent_since = now if self._silent_since is None else self._silent_since
        return now - self._silent_since >= (VACANT_SECONDS if found.has_answer else DEAF_SECONDS)

    def forget_departed(self, change: Change) -> None:
        """
        Forget nodes that left, once the state record has the change.

        A node that failed before the cluster has formed is kept: its replacement is requested when the cluster forms.
        """
        for instance_id, reason in change.left.items():
            LOG.warning("evicted %s: %s", instance_id, reason)
            if instance_id not in self._reports.failed() or self._replacements.has_ordered(instance_id):
                self._reports.forget(instance_id)
            self._acknowledge_by.pop(instance_id, None)
        for member in change.joined:
            LOG.info("admitted %s (%s)", member.instance_id, member.address)

    def _find_reason(self, worker: Member, found: MemberHealth) -> Reason:
        """Return the reason to evict a worker; a false one when it stays."""
        name = worker.instance_id
        reason = self._reports.reason(name) or Reason(found.unfit.get(name, "") or found.silent.get(name, ""))
        if reason or self._reports.is_ready(name, 1):
            return reason
        limit = self._acknowledge_by.setdefault(name, self._node.limit(ACKNOWLEDGE_SECONDS))
        late = Reason(f"it did not acknowledge its membership within {ACKNOWLEDGE_SECONDS} s")
        return late if limit.is_over else NO_REASON

    def _find_fewer_gpus(self, workers: Sequence[Member], newcomers: Sequence[Member]) -> Mapping[str, str]:
        """
        Find newcomers with fewer GPUs than most workers have, each compared with the members; they are replaced.

        A node that was left out for this is admitted only when it joins with as many GPUs as the others.
        """
        return {
            newcomer.instance_id: cause
            for newcomer in newcomers
            if (cause := find_fewer_gpus([*workers, newcomer]).get(newcomer.instance_id))
        }

    def _candidates(self, state: ClusterState) -> tuple[Member, ...]:
        return tuple(member for member in self._reports.joined() if not state.has_member(member.instance_id))

    def _newcomers(self, state: ClusterState, unanswered: Collection[str]) -> tuple[Member, ...]:
        """Return workers that joined, respond and are no members; of two with one address, the one that joined last."""
        holders = {member.address: member.instance_id for member in state.members}
        found = {
            member.address: member
            for member in self._candidates(state)
            if member.instance_id not in unanswered
            and not self._replacements.has_ordered(member.instance_id)
            and self._reports.has_joined_after(member.instance_id, holders.get(member.address, ""))
            and (member.address not in holders or self._reports.owns_address(member))
        }
        return tuple(found.values())

    def write_ready_hosts(self, state: ClusterState, left: Collection[str] = ()) -> None:
        """Write /opt/deeplearning/ready_hosts: the members that train, have acknowledged and do not leave."""
        first, *workers = state.members
        ready = [m for m in workers if self._reports.is_ready(m.instance_id, 1) and m.instance_id not in left]
        write_ready_hosts(self._node, training_members((first, *ready)))
