"""Formation: waits for workers, leaves out failed and missing ones, and fails within the set-up time."""

from collections.abc import Callable, Iterable, Mapping

from deeplearning_agent.membership.member_monitor import MemberHealth, find_fewer_gpus
from deeplearning_agent.membership.report_collector import ReportCollector
from deeplearning_agent.membership.transitions import Change, find_displaced
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.membership import Member
from deeplearning_contract.reason import Reason
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node

REBOOT_SECONDS = 45
_RESERVE_SHARE = 0.1
_LONGEST_RESERVE_SECONDS = 120


def reserve_seconds(setup_seconds: float) -> float:
    """Return the time at the end of the set-up time that is reserved for a formation without the missing workers."""
    return min(_LONGEST_RESERVE_SECONDS, _RESERVE_SHARE * setup_seconds)


class Formation:
    """
    Rules for the workers before the cluster has formed.

    A worker that failed, is still missing near the end of the set-up time, or has fewer GPUs than most others (it would
    delay them, or break an even job), is left out if the user's minimum remains. Otherwise the cluster fails at once.
    A worker that is gone, and without which too few remain, is replaced by its group, and the replacement is awaited.
    """

    def __init__(self, node: Node, collector: ReportCollector, deadline: Deadline) -> None:
        """Bind the node; the deadline is the end of the set-up time."""
        reserve = reserve_seconds(node.settings.setup_seconds)
        self._clock = node.clock
        self._gone_since: Mapping[str, float] = {}
        self._settings = node.settings
        self._collector = collector
        self._reports = collector.reports
        self.deadline = deadline
        self.joined_by = Deadline(node.clock, deadline.at - reserve)
        self.ready_by = Deadline(node.clock, deadline.at - reserve / 2)

    def check_deadline(self, cause: str) -> None:
        """Raise StageFailure with a cause once the set-up time is over."""
        if self.deadline.is_over:
            seconds = self._settings.setup_seconds
            raise StageFailure(f"the set-up time of {seconds} s is over: {cause}", "", stage="form the cluster")

    def collect_joined(
        self, state: ClusterState, workers: Iterable[str], until: Deadline
    ) -> Mapping[str, Reason] | None:
        """
        Wait for the workers of a generation to join, until a deadline at which the caller reads the state record again.

        Returns the reasons of the workers to leave out, by instance id; None while some are still awaited. StageFailure
        means that too few can join.
        """
        expected = tuple(workers)

        def has_joined(name: str) -> bool:
            return self._reports.member(name) is not None

        minimum = self._minimum(state)
        self._collect(expected, has_joined, until.at_most(max(0.0, self.joined_by.remaining)), minimum)
        return self._judge(expected, has_joined, self.joined_by, minimum)

    def collect_ready(
        self,
        state: ClusterState,
        limit: Deadline,
        until: Deadline,
        look: Callable[[ClusterState], tuple[MemberHealth, tuple[Member, ...]]],
    ) -> Change | None:
        """
        Wait for the members of a generation to acknowledge it.

        Members that have not by `limit` are left out; the caller reads the state record again at `until`. `look` finds
        members that are gone, and workers to take their place; it is called only while some members are awaited.

        Returns an empty change when all have acknowledged; None while some are still awaited. In a cluster that never
        formed, workers join only with the departure of others; StageFailure means that too few are left.
        """
        workers = tuple(member.instance_id for member in state.members[1:])

        def is_ready(name: str) -> bool:
            return self._reports.is_ready(name, state.generation)

        minimum = self._minimum(state)
        if self._collect(workers, is_ready, until, minimum) and all(map(is_ready, workers)):
            return Change({})
        found, newcomers = look(state)
        gone = {name: Reason(cause) for name, cause in found.silent.items() if not is_ready(name)}
        if state.has_formed:
            newcomers = ()
        else:
            gone = self._keep_lasting(gone) | find_displaced(state.members[1:], newcomers)
        lost = self._judge(workers, is_ready, limit, minimum, gone=gone, newcomers=len(newcomers))
        return None if lost is None else Change(lost, newcomers if lost else ())

    def has_enough(self, state: ClusterState) -> bool:
        """Return whether a membership has the fewest workers with which the cluster may form."""
        return len(state.members) > self._minimum(state)

    def _minimum(self, state: ClusterState) -> int:
        """Return the fewest workers with which the cluster may form; 0 once it has formed."""
        return 0 if state.has_formed else state.worker_minimum

    def _keep_lasting(self, gone: Mapping[str, Reason]) -> dict[str, Reason]:
        """Return nodes that have been silent for longer than a reboot takes."""
        now = self._clock.read()
        self._gone_since = {name: self._gone_since.get(name, now) for name in gone}
        return {name: gone[name] for name, since in self._gone_since.items() if now - since >= REBOOT_SECONDS}

    def _collect(
        self, workers: tuple[str, ...], has_reported: Callable[[str], bool], until: Deadline, minimum: int
    ) -> bool:
        def is_done() -> bool:
            lost = [name for name in workers if self._reports.reason(name)]
            is_hopeless = bool(lost) and len(workers) - len(lost) < minimum
            return is_hopeless or all(has_reported(name) or name in lost for name in workers)

        return self._collector.collect(is_done, until)

    def _judge(
        self,
        workers: tuple[str, ...],
        has_reported: Callable[[str], bool],
        limit: Deadline,
        minimum: int,
        *,
        gone: Mapping[str, Reason] | None = None,
        newcomers: int = 0,
    ) -> Mapping[str, Reason] | None:
        lost = {name: self._reports.reason(name) for name in workers if self._reports.reason(name)}

        def is_too_few() -> bool:
            return len(workers) + newcomers - len(lost) < minimum

        if lost and is_too_few():
            raise _blame(lost, lost, workers, minimum)
        lost |= gone or {}
        missing = [name for name in workers if name not in lost and not has_reported(name)]
        is_short = is_too_few()
        if (missing or is_short) and not limit.is_over:
            return lost if gone and not is_short else None
        if is_short:
            raise _blame(lost, lost, workers, minimum)
        lost |= {name: Reason(self._reports.describe(name)) for name in missing}
        if missing and is_too_few():
            raise self._time_out(missing, workers)
        found = (self._reports.member(name) for name in workers if name not in lost)
        few = find_fewer_gpus([member for member in found if member is not None])
        short = {name: Reason(cause) for name, cause in few.items()}
        lost |= short
        if short and is_too_few():
            raise _blame(short, lost, workers, minimum)
        return lost

    def _time_out(self, missing: list[str], workers: tuple[str, ...]) -> StageFailure:
        seconds = self._settings.setup_seconds
        return StageFailure(
            f"the set-up time of {seconds} s is over and {len(missing)} of {len(workers)} workers are missing: "
            + ", ".join(map(self._reports.describe, missing)),
            "read the agent's log on them, or allow more time",
            stage="form the cluster",
        )


def _blame(
    found: Mapping[str, Reason], lost: Mapping[str, Reason], workers: tuple[str, ...], minimum: int
) -> StageFailure:
    """Return the failure of the cluster, with the reason of the first of the workers."""
    name, reason = next(iter(found.items()))
    where = "" if name in reason.cause else f"worker {name}: "
    if len(lost) > 1 or len(workers) > 1:
        where += f"{len(lost)} of {len(workers)} workers failed and at least {minimum} must remain; the first: "
    return StageFailure(reason.cause, reason.remedy, output=reason.output, where=where)
