"""
A model of what the adjuster meets: Auto Scaling, the records, the stack, the master and the user, in virtual time.

Auto Scaling behaves as AWS says, or as harshly as it leaves open: it answers with what was true up to ten seconds ago,
it tries failed launches again for ever, and it terminates the oldest when desired is lowered too far. What the adjuster
calls is in `model_invocation.py`, what is promised in `invariants.py`.
"""

from dataclasses import dataclass, field

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.observation import GroupObservation, Instance
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason
from deeplearning_contract.settings import AdjusterSettings

START = 1_700_000_000.0
LAMBDA_SECONDS = 60
"""Half of what an invocation has, so that the search meets its end."""
SETTLE_SECONDS = 10
_DIED = "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason:"
MESSAGES = {
    "capacity": "We currently do not have sufficient p3dn.24xlarge capacity in the Availability Zone you requested.",
    "quota": "You have requested more vCPU capacity than your current vCPU limit of 0 allows.",
    "throttled": "Request limit exceeded. Account 1 has been throttled on ec2:RunInstances.",
    "denied": "You are not authorized to perform this operation.",
    "image": "The image id '[ami-1]' does not exist.",
    "volumes": f"{_DIED} Client.VolumeLimitExceeded: Volume limit exceeded",
    "key": f"{_DIED} Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state",
}
CONFIGURATION = ("denied", "image", "key")
PASSING = ("throttled",)
"""Temporary failures, which prove nothing about the configuration."""
EARLY_DEATHS = ("volumes", "key")
"""Launches that end as `Cancelled`, whose instance is terminated before it was in service."""
MOST_FAILURES, FAILURE_SECONDS = 3, 1800
"""The breaker's numbers, said again: the model must not believe the code under test."""
SICK = "At 2026-11-21T10:00:00Z an instance was taken out of service in response to an EC2 health check indicating"
SURPLUS = "At 2026-11-21T10:00:00Z an instance was taken out of service in response to a difference between desired"
_KEPT_SECONDS = 90
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"


@dataclass
class Node:
    """An instance of a modelled group."""

    instance_id: str
    lifecycle: str = "Pending"
    health: str = "Healthy"


@dataclass
class Attempt:
    """A scaling activity of a modelled group."""

    activity_id: str
    kind: str
    start: float
    node: Node
    status: str = "InProgress"
    end: float | None = None
    message: str = ""
    cause: str = ""
    is_early: bool = False
    """True if it terminates an instance that was never in service."""


@dataclass
class ModelGroup:
    """One Auto Scaling group."""

    role: NodeRole
    desired: int
    max_size: int
    min_size: int = 0
    exists: bool = True
    nodes: list[Node] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    suspended: set[str] = field(default_factory=set)
    is_deleting: bool = False
    hook: str = ""
    """Suffix that a lifecycle hook adds to the state of an instance that launches."""
    history: list[tuple[float, GroupObservation | None]] = field(default_factory=list)
    lost_at: float | None = None
    """Time at which it lost an instance that it has not tried to replace yet."""
    candidate: str = "0"

    @property
    def name(self):
        return f"{self.role.value}-group" + ("" if self.candidate == "0" else f"-{self.candidate}")

    @property
    def live(self):
        return sorted(n.instance_id for n in self.nodes if n.lifecycle == "InService" and n.health == "Healthy")

    def running(self, kind):
        return [attempt for attempt in self.attempts if attempt.status == "InProgress" and attempt.kind == kind]

    def observe(self):
        return GroupObservation(
            name=self.name,
            role=self.role,
            min_size=self.min_size,
            desired=self.desired,
            max_size=self.max_size,
            instances=tuple(Instance(n.instance_id, n.lifecycle, n.health, "p3dn.24xlarge") for n in self.nodes),
            activities=tuple(
                Activity(
                    a.activity_id,
                    a.kind,
                    a.status,
                    a.start,
                    a.end,
                    a.message,
                    "eu-west-1a",
                    a.node.instance_id,
                    a.cause,
                )
                for a in reversed(self.attempts)
            ),
            suspended=frozenset(self.suspended),
            created=START,
            is_deleting=self.is_deleting,
            candidate=self.candidate,
        )

    def remember(self, now):
        self.history.append((now, self.observe() if self.exists else None))
        old = [time for time, _ in self.history if time <= now - _KEPT_SECONDS]
        del self.history[: max(0, len(old) - 1)]

    def seen(self, moment):
        """Return what a read answers that is as old as this moment."""
        return next((shot for time, shot in reversed(self.history) if time <= moment), None)

    def shots_since(self, moment):
        """Return everything that a read may have answered since a moment."""
        return [self.seen(moment), *(shot for time, shot in self.history if time > moment)]


class World:
    """Everything outside of the adjuster's code."""

    def __init__(self, *, minimum, workers, spare=0, stop_after=0, budget=""):
        self.settings = AdjusterSettings(
            "training", "state", "queue", "url", minimum, SETTLE_SECONDS, "", stop_after, budget
        )
        self.now = START
        self.lambda_seconds = LAMBDA_SECONDS
        self.groups = {
            NodeRole.MASTER: ModelGroup(NodeRole.MASTER, 1, 1),
            NodeRole.WORKER: ModelGroup(NodeRole.WORKER, workers, workers + spare),
        }
        self.state = None
        self.adjustment = None
        self.breaker = None
        self.stop = None
        self.requested = None
        self.search = None
        self.requests = []
        self.answers = []
        self.by_hand = set()
        """Roles that a user has scaled since the last request was read."""
        self.is_deleted = False
        self.had_capacity = False
        """True if the cluster had capacity at the first request, which then asks for none."""
        self.allowed_from = START
        """Earliest start of the present allowance: with the groups, or when a user scaled up after a stop."""
        self.has_ended = False
        self.is_budget_spent = False
        self.events = []
        self.failures_told = 0
        self.watched_until = 0
        self.calling = ""
        """Name of the call that an invocation is about to make."""
        self.denials = (0.0, 0.0)
        self.is_manned = True
        self.joined = set()
        self.counted_from = START
        self.block = self.block_error = None
        self.signals = []
        self.notifications = []
        self.writes = []
        self.box = []
        self.asked = workers
        self.ids = 0
        self.user_suspended = set()
        for group in self.groups.values():
            group.remember(self.now)

    @property
    def workers(self):
        return self.groups[NodeRole.WORKER]

    @property
    def master(self):
        return self.groups[NodeRole.MASTER]

    @property
    def floor(self):
        requested = self.requested
        is_waiting = requested is not None and requested.block is not None and not requested.is_over
        return max(0 if is_waiting else self.settings.worker_min_capacity, self.workers.min_size)

    def changed(self, group):
        group.remember(self.now)

    def new_id(self, prefix):
        self.ids += 1
        return f"{prefix}{self.ids:08x}"

    # What Auto Scaling does.

    def react(self, role, *, listed=True):
        """Begin what the difference between desired and actual capacity asks for."""
        group = self.groups[role]
        if not group.exists:
            return
        for node in group.nodes:
            if node.health != "Healthy" and node.lifecycle == "InService" and "ReplaceUnhealthy" not in group.suspended:
                self._terminate(group, node, SICK)
        count = sum(node.lifecycle == "InService" or node.lifecycle.startswith("Pending") for node in group.nodes)
        hidden = sum(attempt.node not in group.nodes for attempt in group.running("launch"))
        while count + hidden < group.desired and "Launch" not in group.suspended:
            node = Node(self.new_id("i-"), f"Pending{group.hook}")
            group.attempts.append(Attempt(self.new_id("a-"), "launch", self.now, node))
            group.lost_at = None
            if listed:
                group.nodes.append(node)
                count += 1
            else:
                hidden += 1
        for node in [n for n in group.nodes if n.lifecycle == "InService"][: max(0, count + hidden - group.desired)]:
            self._terminate(group, node, SURPLUS)
        self.changed(group)

    def _terminate(self, group, node, cause):
        node.lifecycle = "Terminating"
        group.attempts.append(Attempt(self.new_id("a-"), "terminate", self.now, node, cause=cause))

    def losses(self, seconds):
        """Return the ids of workers that a health check took away lately and that never were members."""
        since = max(self.now - seconds, self.counted_from)
        if self.breaker is not None:
            since = max(since, self.breaker.counted_from)
        sick = (a for a in self.workers.attempts if a.kind == "terminate" and a.cause == SICK and a.start >= since)
        return {attempt.node.instance_id for attempt in sick if not attempt.is_early} - self.joined

    def end_launch(self, role, code="", *, count=1):
        """End the oldest launches under way, well or with an error."""
        group = self.groups[role]
        for attempt in group.running("launch")[:count]:
            attempt.end = float(int(self.now))
            is_early = code in EARLY_DEATHS
            attempt.status = ("Cancelled" if is_early else "Failed") if code else "Successful"
            attempt.message = MESSAGES[code] if code else ""
            if is_early:
                attempt.node.lifecycle = "Terminating"
                end = Attempt(self.new_id("a-"), "terminate", self.now, attempt.node, cause=SICK, is_early=True)
                group.attempts.append(end)
            elif code:
                group.nodes = [node for node in group.nodes if node is not attempt.node]
            elif attempt.node not in group.nodes:
                group.nodes.append(attempt.node)
            if not is_early:
                attempt.node.lifecycle = "Terminated" if code else "InService"
            self.box.append("launch error" if code else "launch")
        self.changed(group)

    def end_terminations(self, role):
        """End every termination under way."""
        group = self.groups[role]
        ending = group.running("terminate")
        for attempt in ending:
            attempt.end, attempt.status = float(int(self.now)), "Successful"
            is_replaced = any(other.kind == "launch" and other.start >= attempt.start for other in group.attempts)
            group.nodes = [node for node in group.nodes if node is not attempt.node]
            if not attempt.is_early and not is_replaced and len(group.nodes) < group.desired:
                group.lost_at = self.now
            self.box.append("terminate")
        if ending:
            self.changed(group)

    def lose_node(self, role):
        """Let the first healthy node of a group fail its health check."""
        group = self.groups[role]
        for node in [n for n in group.nodes if n.lifecycle == "InService" and n.health == "Healthy"][:1]:
            node.health = "Unhealthy"
            self.changed(group)

    def pass_time(self, seconds):
        self.now += seconds

    # What a user does. Auto Scaling shows it at once: nobody could notice a change later and still not undo it.

    def is_ambiguous(self, desired):
        """Return whether a user's request would look like what a shrink left."""
        if self.requested is not None and self.requested.is_open:
            return True
        return self.adjustment is not None and desired in (self.adjustment.before, self.adjustment.target)

    def user_sets_desired(self, desired):
        group = self.workers
        desired = max(group.min_size, min(desired, group.max_size))
        if desired == group.desired or self.is_ambiguous(desired):
            return
        self.note_scale_up(group, desired)
        group.desired = self.asked = desired
        self.note_scaling(group)
        self.forget_old_answers(group)

    def note_scaling(self, group):
        """Note a user's scaling; back to what waits for a block is none, as far as anybody can tell."""
        waits = self.requested is not None and self.requested.block is not None
        if waits and any((ask.group, ask.target) == (group.name, group.desired) for ask in self.requested.asks):
            self.by_hand.discard(group.role)
        else:
            self.by_hand.add(group.role)

    def user_starts_again(self, desired):
        """Raise both groups after a stop, as one who goes on with the cluster."""
        if self.master.desired < self.master.max_size:
            self.note_scale_up(self.master, self.master.max_size)
            self.master.desired = self.master.max_size
            self.forget_old_answers(self.master)
        self.user_sets_desired(desired)
        if not self.is_ambiguous(self.workers.desired):
            self.asked = self.workers.desired

    def note_scale_up(self, group, desired):
        if self.has_ended and desired > group.desired:
            self.has_ended, self.allowed_from = False, self.now

    def end_stop(self):
        self.has_ended, self.is_budget_spent = True, False

    # What the stack does.

    def wait_for_the_stack(self):
        """Take the groups back to what the template says of them."""
        for group in self.groups.values():
            group.desired = 0
            self.forget_old_answers(group)

    def stack_request(self, kind, workers):
        """Return a request of CloudFormation as it reaches the function."""
        event = {
            "RequestType": kind,
            "RequestId": f"request-{len(self.requests)}",
            "StackId": "stack",
            "LogicalResourceId": "RequestedCapacity",
            "ResponseURL": "https://cloudformation.example",
            "ResourceProperties": {"Master": "1", "Workers": str(workers), "Candidate": "0"},
        }
        if kind != "Create":
            event["PhysicalResourceId"] = self.requested.request.resource
        self.requests.append(event)
        return event

    @property
    def has_request(self):
        return self.requested is not None

    def wanted(self, role):
        """Return what the request wants of a role, within what the group allows; not said by the code under test."""
        group, request = self.groups[role], self.requested.request
        has_begun = self.block is None or self.block.state == "active"
        count = request.master if role is NodeRole.MASTER else request.workers if has_begun else 0
        return max(group.min_size, min(count, group.max_size))

    def user_deletes_the_stack(self):
        for group in self.groups.values():
            group.is_deleting = True
            self.forget_old_answers(group)

    def user_sets_minimum(self, minimum):
        group = self.workers
        is_raised = minimum > group.desired
        if minimum > group.max_size or (is_raised and self.is_ambiguous(minimum)):
            return
        group.min_size = minimum
        if is_raised:
            self.note_scale_up(group, minimum)
            group.desired = self.asked = minimum
            self.note_scaling(group)
        self.forget_old_answers(group)

    def user_suspends(self, process):
        if self.adjustment is None or not self.adjustment.is_open:
            self.user_suspended.add(process)
            self.workers.suspended.add(process)
            self.forget_old_answers(self.workers)

    def forget_old_answers(self, group):
        group.history = [(START, group.observe() if group.exists else None)]

    def user_resumes(self):
        """Let the user resume what the breaker suspended."""
        if self.breaker is not None and self.breaker.is_tripped and not self.breaker.lease_until:
            self.workers.suspended.discard("Launch")
            # Before a membership is published, the cluster fails all the same.
            if self.state is not None and self.state.phase is not Phase.LAUNCHED:
                self.counted_from = self.now
            self.forget_old_answers(self.workers)

    # What the master's agent does, as far as the adjuster meets it.

    def write_as_master(self, phase, **changes):
        self.state = self.state.advance(phase, **changes)
        self.writes.append(self.state)
        self.joined.update(member.instance_id for member in self.state.members)

    def members(self, names):
        """Describe nodes; a name of another form is nobody's."""
        return tuple(Member(name, f"10.0.{n // 250}.{n % 250 + 1}", 0, _KEY) for n, name in enumerate(names))

    def is_at(self, *phases):
        """Return whether a master is at work, and the cluster in one of these phases."""
        return self.is_manned and self.state is not None and self.state.phase in phases

    def master_publishes(self):
        if self.is_at(Phase.LAUNCHED) and self.master.live:
            self.write_as_master(Phase.PUBLISHED, members=self.members(self.state.expected), user_key=_KEY)

    def master_forms(self):
        if self.is_at(Phase.PUBLISHED):
            self.write_as_master(Phase.FORMED)

    def master_adapts(self):
        """Drop the dead and take the newcomers in."""
        state = self.state
        if not self.is_at(Phase.FORMED) or not self.master.live:
            return
        live = (self.master.live[0], *self.workers.live)
        survivors = [member.instance_id for member in state.members if member.instance_id in live]
        names = dict.fromkeys([live[0], *survivors, *live])
        if tuple(names) == tuple(member.instance_id for member in state.members):
            return
        gone = {m.instance_id: Reason("died") for m in state.members if m.instance_id not in live}
        phase = Phase.FORMED if live[0] == state.master else Phase.PUBLISHED
        self.state = state.depart(state.generation + 1, gone)
        self.write_as_master(phase, generation=state.generation + 1, members=self.members(names))

    def master_gives_up(self):
        if self.is_at(Phase.LAUNCHED, Phase.PUBLISHED):
            self.signals.append("a worker did not join")
            self.write_as_master(Phase.FAILED, reason=Reason("a worker did not join"))

    @property
    def own_suspensions(self):
        broken = {"Launch"} if self.breaker is not None and self.breaker.is_tripped else set()
        return self.workers.suspended - self.user_suspended - broken

    @property
    def record(self):
        """Return all that an adjuster can change."""
        return (
            self.state, self.adjustment, self.breaker, self.stop, tuple(self.signals), tuple(self.notifications),
            self.master.desired, self.workers.desired, frozenset(self.workers.suspended),
        )  # fmt: skip


def live_in(shot):
    """Ids that are in service; not asked of the code under test, whose idea of it may be what is wrong."""
    return tuple(sorted(i.instance_id for i in shot.instances if (i.lifecycle, i.health) == ("InService", "Healthy")))


def is_quiet(shot):
    return len(live_in(shot)) == len(shot.instances) and all(a.status != "InProgress" for a in shot.activities)


def has_failed(activity):
    early = {MESSAGES[code] for code in EARLY_DEATHS}
    return activity.status == "Failed" or (activity.status == "Cancelled" and activity.message in early)


def is_hopeless(shot, failed):
    """Return whether nothing launched, and all that does not pass by itself is a mistake in the configuration."""
    judged = [a.message for a in failed if a.message not in {MESSAGES[code] for code in PASSING}]
    return not live_in(shot) and bool(judged) and {MESSAGES[code] for code in CONFIGURATION}.issuperset(judged)


def keeps_dying(shot):
    """Return whether all that was asked for died twice of the key before it was in service."""
    failed = [a for a in shot.activities if has_failed(a)]
    deaths = sum(a.message == MESSAGES["key"] for a in failed)
    return is_hopeless(shot, failed) and deaths >= 2 * max(1, shot.desired)


def is_failure(world, master, workers):
    if not live_in(master):
        return keeps_dying(master) or (is_quiet(master) and any(has_failed(a) for a in master.activities))
    if keeps_dying(workers):
        return True
    live = len(live_in(workers))
    failed = [a for a in workers.activities if has_failed(a)]
    is_over = live < world.floor or is_hopeless(workers, failed)
    return is_quiet(workers) and bool(failed) and live < workers.desired and is_over
