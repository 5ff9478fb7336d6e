"""Replacements of lost workers, requested from Auto Scaling."""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from deeplearning_agent.membership.member_monitor import MemberHealth
from deeplearning_agent.membership.worker_reports import WorkerReports
from deeplearning_contract.membership import Member
from deeplearning_node.aws_clients import AwsClients, AwsError
from deeplearning_node.deadline import Deadline
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
SILENT_SECONDS = 60
"""Time for which a worker may be silent before it is replaced: a short loss of the network costs no instance."""
RETURN_SECONDS = 600
"""Time within which a worker that responds again must join."""
RETRY_SECONDS = 60


@dataclass(frozen=True)
class _Silence:
    member: Member
    due: Deadline
    last: Deadline


class Replacements:
    """Replacements that were requested or are scheduled."""

    def __init__(self, node: Node, clients: AwsClients, reports: WorkerReports) -> None:
        self._node = node
        self._clients = clients
        self._reports = reports
        self._due: set[str] = set()
        self._silences: dict[str, _Silence] = {}
        self._ordered: set[str] = set()
        self._refused: dict[str, Deadline] = {}
        """Instance id of each request that Auto Scaling refused -> time of the retry."""

    def has_ordered(self, instance_id: str) -> bool:
        """Return whether a worker is being replaced, so that it is not admitted again."""
        return instance_id in self._ordered or instance_id in self._refused

    def mark_unhealthy(self, causes: Mapping[str, str]) -> None:
        """Mark nodes that are no members for replacement; `causes` maps instance ids to reasons."""
        for name in causes.keys() - self._ordered - self._refused.keys():
            LOG.warning("%s is not admitted: %s", name, causes[name])
            self._due.add(name)

    def awaited(self) -> tuple[Member, ...]:
        """Return the silent workers whose replacement is scheduled, which may respond again."""
        return tuple(silence.member for silence in self._silences.values())

    def schedule(self, left: Iterable[Member], found: MemberHealth) -> None:
        """
        Schedule replacements: at once for failed workers, later for silent ones, none for those that EC2 interrupts.

        While no worker responds, silence schedules none: the fault may be the master's.
        """
        for member in left:
            name = member.instance_id
            if name in found.unfit:
                self._due.add(name)
            elif name in found.silent and found.has_answer and not self._reports.is_leaving(name):
                limits = self._node.limit(SILENT_SECONDS), self._node.limit(RETURN_SECONDS)
                self._silences[name] = _Silence(member, *limits)
        self._due |= set(self._reports.failed()) - self._ordered - self._refused.keys()

    def submit_due(self, kept: Collection[str], found: MemberHealth) -> None:
        """
        Request the replacements that are due, except of members that came back.

        Effects: a call to Auto Scaling for each. A failed call is retried a minute later, unless the group has replaced
        the instance already.
        """
        self._due |= {name for name, again in self._refused.items() if again.is_over}
        for name, silence in list(self._silences.items()):
            is_time = found.has_answer if name in found.unanswered else silence.last.is_over
            is_due = silence.due.is_over and is_time
            if name in kept or (is_due and self._replace(name)):
                del self._silences[name]
            elif is_due:  # It may respond again before the retry.
                self._silences[name] = replace(silence, due=self._node.limit(RETRY_SECONDS))
        for name in sorted(self._due):
            self._due.discard(name)
            self._refused.pop(name, None)
            if name not in kept and not self._replace(name):
                self._refused[name] = self._node.limit(RETRY_SECONDS)

    def _replace(self, instance_id: str) -> bool:
        """Request a worker's replacement from Auto Scaling; return whether no retry is needed."""
        try:
            self._clients.autoscaling.set_instance_health(
                InstanceId=instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
            )
        except AwsError as error:
            if "not found" not in str(error):
                LOG.warning("Auto Scaling refused to replace %s; retrying: %s", instance_id, error)
                return False
            LOG.info("Auto Scaling has replaced %s already", instance_id)
        else:
            LOG.info("requested the replacement of %s", instance_id)
        self._ordered.add(instance_id)
        return True
