"""
A model of what the adjuster meets: Auto Scaling, the records, the stack and other invocations, in virtual time.

Auto Scaling behaves as AWS says, or as harshly as it leaves open: it answers with what was true up to ten seconds ago,
it tries failed launches again for ever, and it terminates the oldest when desired is lowered too far. Every call is
checked against the truth, so a broken promise of the adjuster is an AssertionError at the call that breaks it.
"""

from dataclasses import dataclass, field, replace

from capacity_adjuster.edges import Edges
from capacity_adjuster.observation import Activity, GroupObservation, Instance
from capacity_adjuster.reconciliation import Reconciliation
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.settings import AdjusterSettings

START = 1_700_000_000.0
LAMBDA_SECONDS = 60
SETTLE_SECONDS = 10
MESSAGES = {
    "capacity": "We currently do not have sufficient p3dn.24xlarge capacity in the Availability Zone you requested.",
    "quota": "You have requested more vCPU capacity than your current vCPU limit of 0 allows.",
    "denied": "You are not authorized to perform this operation.",
    "image": "The image id '[ami-1]' does not exist.",
}
CONFIGURATION = ("denied", "image")


class Crash(BaseException):
    """The invocation dies: whatever it calls from now on does not happen."""


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
    history: list[tuple[float, GroupObservation | None]] = field(default_factory=list)
    lost_at: float | None = None
    """When it lost an instance that it has not tried to replace yet."""

    @property
    def live(self):
        return sorted(n.instance_id for n in self.nodes if n.lifecycle == "InService" and n.health == "Healthy")

    def running(self, kind):
        return [attempt for attempt in self.attempts if attempt.status == "InProgress" and attempt.kind == kind]

    def observe(self):
        return GroupObservation(
            name=f"{self.role.value}-group",
            role=self.role,
            min_size=self.min_size,
            desired=self.desired,
            max_size=self.max_size,
            instances=tuple(Instance(n.instance_id, n.lifecycle, n.health, "p3dn.24xlarge") for n in self.nodes),
            activities=tuple(
                Activity(a.activity_id, a.kind, a.status, a.start, a.end, a.message, "eu-west-1a")
                for a in reversed(self.attempts)
            ),
            suspended=frozenset(self.suspended),
            created=START,
        )

    def remember(self, now):
        self.history.append((now, self.observe() if self.exists else None))

    def seen(self, moment):
        """Return what a read answers that is as old as this moment."""
        return next((shot for time, shot in reversed(self.history) if time <= moment), None)

    def shots_since(self, moment):
        """Return everything that a read may have answered since a moment."""
        return [self.seen(moment), *(shot for time, shot in self.history if time > moment)]


class World:
    """Everything outside of the adjuster's code."""

    def __init__(self, *, minimum, workers, spare=0):
        self.settings = AdjusterSettings("training", "state", "queue", "url", minimum, SETTLE_SECONDS)
        self.now = START
        self.groups = {
            NodeRole.MASTER: ModelGroup(NodeRole.MASTER, 1, 1),
            NodeRole.WORKER: ModelGroup(NodeRole.WORKER, workers, workers + spare),
        }
        self.state = None
        self.adjustment = None
        self.watched_until = 0
        self.signals = []
        self.rings = []
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
        return max(self.settings.worker_min_capacity, self.workers.min_size)

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
                self._terminate(group, node)
        count = sum(node.lifecycle in ("Pending", "InService") for node in group.nodes)
        hidden = sum(attempt.node not in group.nodes for attempt in group.running("launch"))
        while count + hidden < group.desired and "Launch" not in group.suspended:
            node = Node(self.new_id("i-"))
            group.attempts.append(Attempt(self.new_id("a-"), "launch", self.now, node))
            group.lost_at = None
            if listed:
                group.nodes.append(node)
                count += 1
            else:
                hidden += 1
        for node in [n for n in group.nodes if n.lifecycle == "InService"][: max(0, count + hidden - group.desired)]:
            self._terminate(group, node)
        self.changed(group)

    def _terminate(self, group, node):
        node.lifecycle = "Terminating"
        group.attempts.append(Attempt(self.new_id("a-"), "terminate", self.now, node))

    def end_launch(self, role, code=""):
        """End the oldest launch under way, well or with an error."""
        group = self.groups[role]
        for attempt in group.running("launch")[:1]:
            attempt.end = float(int(self.now))
            attempt.status, attempt.message = ("Failed", MESSAGES[code]) if code else ("Successful", "")
            if code:
                group.nodes = [node for node in group.nodes if node is not attempt.node]
            elif attempt.node not in group.nodes:
                group.nodes.append(attempt.node)
            attempt.node.lifecycle = "Terminated" if code else "InService"
            self.box.append("launch error" if code else "launch")
            self.changed(group)

    def end_terminations(self, role):
        """End every termination under way."""
        group = self.groups[role]
        for attempt in group.running("terminate"):
            attempt.end, attempt.status = float(int(self.now)), "Successful"
            is_replaced = any(other.kind == "launch" and other.start >= attempt.start for other in group.attempts)
            if not is_replaced and len(group.nodes) < group.desired:
                group.lost_at = self.now
            group.nodes = [node for node in group.nodes if node is not attempt.node]
            self.box.append("terminate")
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

    def user_sets_desired(self, desired):
        group = self.workers
        desired = max(group.min_size, min(desired, group.max_size))
        is_ambiguous = self.adjustment is not None and desired == self.adjustment.target
        if desired == group.desired or is_ambiguous:
            return
        group.desired = self.asked = desired
        self.forget_old_answers(group)

    def user_sets_minimum(self, minimum):
        group = self.workers
        is_raised = minimum > group.desired
        is_ambiguous = self.adjustment is not None and minimum == self.adjustment.target
        if minimum > group.max_size or (is_raised and is_ambiguous):
            return
        group.min_size = minimum
        if is_raised:
            group.desired = self.asked = minimum
        self.forget_old_answers(group)

    def user_suspends(self, process):
        if self.adjustment is None or not self.adjustment.is_open:
            self.user_suspended.add(process)
            self.workers.suspended.add(process)
            self.forget_old_answers(self.workers)

    def forget_old_answers(self, group):
        group.history = [(START, group.observe() if group.exists else None)]

    # The adjuster.

    def invoke(self, *, crash_at=None, lag=0.0, meanwhile=()):
        """Run one invocation of the adjuster; return what it says."""
        invocation = Invocation(self, crash_at=crash_at, lag=lag, meanwhile=list(meanwhile))
        try:
            return invocation.run()
        except Crash:
            return "crashed"

    @property
    def own_suspensions(self):
        return self.workers.suspended - self.user_suspended


class Invocation:
    """
    One invocation: the edges that the adjuster calls, and the clock.

    Args:
        world: The world.
        crash_at: Number of the call in which it dies; odd numbers die after the effect, even ones before it.
        lag: Age of what Auto Scaling answers, in seconds; less than the time between two looks.
        meanwhile: Pairs of a call's number and what happens in the world before it.
    """

    def __init__(self, world, *, crash_at, lag, meanwhile):
        self.world = world
        self.crash_at = crash_at
        self.lag = lag
        self.meanwhile = meanwhile
        self.calls = 0
        self.deadline = world.now + LAMBDA_SECONDS
        self.log = []

    def run(self):
        edges = Edges(self, self, self.ring, self.signal, self)
        return Reconciliation(self.world.settings, edges).run()

    def call(self, name, effect):
        """Carry out one call, unless the invocation dies of it."""
        number = self.calls
        self.calls += 1
        for position, action in self.meanwhile:
            if position == number:
                action(self.world)
        dies = self.crash_at is not None and number >= self.crash_at // 2
        if self.world.now > self.deadline or (dies and (number > self.crash_at // 2 or self.crash_at % 2 == 0)):
            raise Crash
        self.log.append(name)
        result = effect()
        if dies:
            raise Crash
        return result

    # Clock

    def now(self):
        return self.world.now

    def sleep(self, seconds):
        self.call("sleep", lambda: self.world.pass_time(seconds))

    def remaining(self):
        return self.deadline - self.world.now

    # Groups

    def find(self):
        return self.call("find", lambda: tuple(replace(group, activities=None) for group in self._shots()))

    def read_activities(self, name):
        return self.call("read_activities", lambda: self._shot(name).activities)

    def _shots(self):
        shots = [group.seen(self.world.now - self.lag) for group in self.world.groups.values()]
        return [shot for shot in shots if shot is not None]

    def _shot(self, name):
        return next(shot for shot in self._shots() if shot.name == name)

    def suspend(self, name, processes):
        def effect():
            assert name == "worker-group", "only the workers are adjusted"
            assert self.world.adjustment is not None, "a crash would leave nothing that says whose suspension it is"
            self.world.workers.suspended |= set(processes)
            self.world.changed(self.world.workers)

        self.call("suspend", effect)

    def resume(self, name, processes):
        def effect():
            assert not set(processes) & self.world.user_suspended, "a user's suspension was resumed"
            self.world.workers.suspended -= set(processes)
            self.world.changed(self.world.workers)

        self.call("resume", effect)

    def set_desired(self, name, desired):
        def effect():
            world, group = self.world, self.world.workers
            assert name == "worker-group", "only the workers are adjusted"
            assert world.state is None, "D06: acted after the verdict"
            assert desired < group.desired, "I2: desired was raised, or set for nothing"
            assert world.floor <= desired <= group.max_size, "I1: desired left the policy's bounds"
            assert {"Launch", "AZRebalance", "ReplaceUnhealthy"} <= group.suspended, "shrunk while the group could act"
            is_lost = group.lost_at is not None and group.lost_at < world.now - SETTLE_SECONDS
            assert not is_lost, "D07: a replacement was taken for a failed launch"
            assert not group.running("launch"), "I6: shrunk while a launch was in progress"
            assert len(group.live) <= desired, "I7: the shrink terminates a healthy node"
            group.desired = desired
            world.changed(group)

        self.call("set_desired", effect)

    # Records

    def read_state(self):
        return self.call("read_state", lambda: self.world.state)

    def read_adjustment(self):
        return self.call("read_adjustment", lambda: self.world.adjustment)

    def write_adjustment(self, adjustment):
        def effect():
            found = self.world.adjustment.revision if self.world.adjustment else 0
            if adjustment.revision != found + 1:
                return False
            self.world.adjustment = adjustment
            return True

        return self.call("write_adjustment", effect)

    def begin_watch(self, now, until):
        def effect():
            assert now < until < now + 60, "a watch of the dead outlives the next tick"
            if self.world.watched_until >= now:
                return False
            self.world.watched_until = until
            return True

        return self.call("begin_watch", effect)

    def end_watch(self):
        def effect():
            self.world.watched_until = 0

        self.call("end_watch", effect)

    def write_state(self, state):
        def effect():
            if self.world.state is not None:
                return False
            check_verdict(self.world, state)
            self.world.state = state
            self.world.writes.append(state)
            return True

        return self.call("write_state", effect)

    def signal(self, reason):
        def effect():
            assert self.world.state is None or self.world.state.phase is Phase.FAILED, "a formed cluster was failed"
            self.world.signals.append(reason)

        self.call("signal", effect)

    def ring(self, doorbell):
        def effect():
            assert self.world.state.phase is Phase.LAUNCHED, "I11: the master was told before the item"
            self.world.rings.append(doorbell)

        self.call("ring", effect)


def check_verdict(world, state):
    """Hold a verdict against everything that was true since the look before the last one."""
    since = world.now - SETTLE_SECONDS
    pairs = [(m, w) for m in world.master.shots_since(since) for w in world.workers.shots_since(since) if m and w]
    assert state.revision == state.generation == 1
    assert state.requested == 1 + world.asked, f"requested was {1 + world.asked}, the item says {state.requested}"
    if state.phase is Phase.LAUNCHED:
        count = len(state.expected) - 1
        assert any(is_truth(state, master, workers) for master, workers in pairs), "I3, I6, I8: no such moment"
        assert count >= min(world.floor, world.asked), "success below the minimum"
        assert bool(state.reason) == (count < world.asked), "a smaller cluster needs a reason, and only that"
    else:
        assert state.expected == ()
        assert world.signals[-1:] == [state.reason], "failed without telling the stack first"
        assert any(is_failure(world, master, workers) for master, workers in pairs), "failed without a cause"
    assert len(state.reason) <= 1000


def live_in(shot):
    """Ids that are in service; not asked of the code under test, whose idea of it may be what is wrong."""
    return tuple(sorted(i.instance_id for i in shot.instances if (i.lifecycle, i.health) == ("InService", "Healthy")))


def is_quiet(shot):
    return len(live_in(shot)) == len(shot.instances) and all(a.status != "InProgress" for a in shot.activities)


def is_truth(state, master, workers):
    return (
        state.expected == (*live_in(master), *live_in(workers))
        and len(live_in(master)) == 1
        and workers.desired == len(live_in(workers))
        and is_quiet(master)
        and is_quiet(workers)
    )


def is_failure(world, master, workers):
    if not live_in(master):
        return is_quiet(master) and any(a.status == "Failed" for a in master.activities)
    live = len(live_in(workers))
    failed = [a for a in workers.activities if a.status == "Failed"]
    is_hopeless = not live and all(a.message in {MESSAGES[code] for code in CONFIGURATION} for a in failed)
    return is_quiet(workers) and bool(failed) and live < workers.desired and (live < world.floor or is_hopeless)
