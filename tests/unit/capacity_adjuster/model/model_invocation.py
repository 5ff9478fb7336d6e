"""
One invocation of the adjuster in the model: every call is checked against the truth as it is made.

It may die around any call, be told what was true ten seconds ago, and find the world changed between two calls.
"""

import json
from dataclasses import replace

import invariants
from scaling_model import SETTLE_SECONDS

from capacity_adjuster.events.capacity_block import ExpiryWarning, announce_expiry
from capacity_adjuster.events.stack_request import answer_stack
from capacity_adjuster.policy.breaker import Breaker
from capacity_adjuster.policy.candidate_search import CandidateSearch
from capacity_adjuster.policy.requested_capacity import RequestedCapacity
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.policy.stop_policy import StopRecord
from capacity_adjuster.reconcile.adapters import Adapters
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from capacity_adjuster.reconcile.observer import Observer
from capacity_adjuster.reconcile.reconciliation import Reconciliation
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason

MUTATING = frozenset(
    {
        "suspend", "resume", "set_desired", "write_adjustment", "write_breaker", "write_state", "write_stop",
        "write_requested", "write_search", "signal", "notify", "send_event", "answer",
    }
)  # fmt: skip
"""All but the watch, which only spares calls."""
NAMES = {
    Adjustment: "adjustment",
    Breaker: "breaker",
    StopRecord: "stop",
    RequestedCapacity: "requested",
    CandidateSearch: "search",
}
RESERVATION = "cr-0123456789abcdef0"


def invoke(world, *, kind=None, message_id="", **options):
    """Run one invocation of the adjuster; return it, with its outcome."""
    return (kind or Invocation)(world, **options).attempt(lambda invocation: invocation.run(message_id))


def warn(world, **options):
    """Run one invocation for the warning that the capacity block ends; return it."""
    return Invocation(world, **options).attempt(lambda invocation: invocation.announce())


def ask(world, event, *, kind=None, **options):
    """Run one invocation for a request of CloudFormation; return it."""
    return (kind or Invocation)(world, **options).attempt(lambda invocation: invocation.answer_stack(event))


class SeenBlock:
    """Reader of the world's capacity block."""

    def __init__(self, invocation):
        self.invocation = invocation
        self.reservation_id = invocation.world.block.reservation_id

    def read(self, now):
        def effect():
            if self.invocation.world.block_error is not None:
                raise self.invocation.world.block_error
            return replace(self.invocation.world.block, looked=int(now))

        return self.invocation.call("read_block", effect)


class Crash(BaseException):
    """The invocation dies: whatever it calls from now on does not happen."""


class Invocation:
    """
    One invocation: the adapters that the adjuster calls, and the clock.

    Args:
        world: The world.
        crash_at: Number of the call in which it dies; odd numbers die after the effect, even ones before it.
        lag: Age of what Auto Scaling answers, in seconds; less than the time between two looks.
        meanwhile: Pairs of a call's number and what happens in the world before it.
    """

    def __init__(self, world, *, crash_at=None, lag=0.0, meanwhile=()):
        self.world = world
        self.crash_at = crash_at
        self.lag = lag
        self.meanwhile = meanwhile
        self.calls = 0
        self.deadline = world.now + world.lambda_seconds
        self.log = []
        self.outcome = ""
        self.last_state = self.written = None
        self.is_stopping = False
        self.is_asking = False
        self.seen_by_hand = frozenset()

    def attempt(self, work):
        """Work until the end, or until it dies; return it."""
        try:
            self.outcome = work(self)
        except (Crash, RuntimeError, TimeoutError):
            self.outcome = "crashed"
        return self

    @property
    def adapters(self):
        block = self.world.block and SeenBlock(self)
        return Adapters(self, self, self.notify, self.signal, self, self.send_event, block)

    def run(self, message_id=""):
        return Reconciliation(self.world.settings, self.adapters, message_id).run()

    def answer_stack(self, event):
        adapters = self.adapters
        capacity_change = CapacityChange(adapters, Observer(self.world.settings, adapters))
        return answer_stack(event, adapters=adapters, capacity_change=capacity_change, send=self.send)

    def send(self, url, body):
        self.call("answer", lambda: self.world.answers.append(json.loads(body)))

    def announce(self):
        warning = ExpiryWarning(RESERVATION, "2026-11-21T12:00:00Z")
        return announce_expiry(warning, reservation_id=RESERVATION, records=self, notify_master=self.notify)

    @property
    def changes(self):
        """Return the calls that changed anything."""
        return [name for name in self.log if name in MUTATING]

    def call(self, name, effect):
        """Carry out one call, unless the invocation dies of it."""
        number = self.calls
        self.calls += 1
        self.world.calling = name
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
        def effect():
            self.seen_by_hand = frozenset(self.world.by_hand)
            return tuple(replace(group, activities=None) for group in self._shots())

        return self.call("find", effect)

    def read_activities(self, name, since=0.0):
        return self.call("read_activities", lambda: self._shot(name).activities)

    def _shots(self):
        shots = [group.seen(self.world.now - self.lag) for group in self.world.groups.values()]
        return [shot for shot in shots if shot is not None]

    def _shot(self, name):
        return next(shot for shot in self._shots() if shot.name == name)

    def suspend(self, name, processes):
        def effect():
            world = self.world
            assert name == "worker-group", "only the workers are adjusted"
            if world.adjustment is None or not world.adjustment.is_open:
                is_recorded = world.breaker is not None and world.breaker.is_tripped
                assert is_recorded, "a crash would leave nothing that says whose suspension it is"
                assert processes == ("Launch",), "the breaker suspends launches, and only them"
                invariants.b1_the_breaker_trips_for_a_cause(world)
            world.workers.suspended |= set(processes)
            world.changed(world.workers)

        self.call("suspend", effect)

    def resume(self, name, processes):
        def effect():
            assert not set(processes) & self.world.user_suspended, "a user's suspension was resumed"
            self.world.workers.suspended -= set(processes)
            self.world.changed(self.world.workers)

        self.call("resume", effect)

    def set_desired(self, name, desired):
        def stop():
            world = self.world
            invariants.s1_a_stop_has_its_time(world)
            group = world.groups[NodeRole(name.removesuffix("-group"))]
            assert desired == group.min_size, "S1: a stop lowers a group to its own minimum, and to nothing else"
            invariants.s2_a_stop_and_a_shrink_exclude_each_other(world, is_stop=True)
            group.desired = desired
            world.changed(group)

        def effect():
            world, group = self.world, self.world.workers
            assert name == "worker-group", "only the workers are adjusted"
            invariants.s2_a_stop_and_a_shrink_exclude_each_other(world, is_stop=False)
            is_open = self.last_state is None or self.last_state.phase is Phase.LAUNCHED
            assert is_open, "D06: acted on a cluster that is the master's"
            assert self.log[-2] == "read_state", "D06: acted on a cluster that may have become the master's"
            invariants.i2_desired_is_only_lowered(world, desired)
            invariants.i1_desired_keeps_to_the_policy(world, desired)
            invariants.i6_nothing_is_decided_while_anything_runs(world)
            invariants.i7_a_shrink_terminates_nothing(world, desired)
            assert {"Launch", "AZRebalance", "ReplaceUnhealthy"} <= group.suspended, (
                "D15: the group could act meanwhile"
            )
            is_lost = group.lost_at is not None and group.lost_at < world.now - SETTLE_SECONDS
            assert not is_lost, "D07: a replacement was taken for a failed launch"
            group.desired = desired
            world.changed(group)

        def raise_to():
            world, role = self.world, NodeRole(name.removesuffix("-group"))
            invariants.w1_no_more_is_asked_for_than_requested(world, role, desired)
            invariants.w2_nobodys_own_scaling_is_overwritten(role, self.seen_by_hand)
            invariants.w3_nothing_is_asked_for_after_the_end(world)
            invariants.w5_a_request_gives_way(world)
            world.groups[role].desired = desired
            if role is NodeRole.WORKER:
                world.asked = desired
            world.changed(world.groups[role])

        chosen = stop if self.is_stopping else raise_to if self.is_asking else effect
        self.call("set_desired", chosen)

    # Records

    def read_state(self):
        self.last_state = self.call("read_state", lambda: self.world.state)
        return self.last_state

    def read(self, kind):
        name = NAMES[kind]
        return self.call(f"read_{name}", lambda: getattr(self.world, name))

    def write(self, record):
        return getattr(self, f"write_{NAMES[type(record)]}")(record)

    def write_adjustment(self, adjustment):
        return self.call("write_adjustment", lambda: self._write("adjustment", adjustment))

    def write_breaker(self, breaker):
        return self.call("write_breaker", lambda: self._write("breaker", breaker))

    def write_stop(self, record):
        def effect():
            is_written = self._write("stop", record)
            self.is_stopping = is_written and record.is_open
            if is_written and record.is_open:
                invariants.s1_a_stop_has_its_time(self.world)
            if is_written and record.is_stopped:
                self.world.end_stop()
            return is_written

        return self.call("write_stop", effect)

    def write_requested(self, requested):
        def effect():
            before = self.world.requested
            is_written = self._write("requested", requested)
            self.is_asking = is_written and requested.is_open and requested.lease_until > 0
            if is_written and requested.asks and not (before and before.asks):
                self.world.by_hand.clear()
                self.seen_by_hand = frozenset()
            if is_written and requested.lease_until and not (requested.asks or requested.is_over):
                self.world.had_capacity = True
            elif is_written and requested.lease_until:
                self.world.had_capacity = False
            if is_written and requested.is_over:
                self.world.is_deleted = True
            return is_written

        return self.call("write_requested", effect)

    def send_event(self, event):
        def effect():
            if event.kind is EventKind.FAILED:
                invariants.e1_a_failure_is_reported_once(self.world, event)
                self.world.failures_told += 1
                return
            assert event.reason == Reason(self.world.stop.cause), "the event must say why"
            self.world.events.append(event)

        self.call("send_event", effect)

    def _write(self, name, record):
        found = getattr(self.world, name)
        if record.revision != (found.revision if found else 0) + 1:
            return False
        setattr(self.world, name, record)
        return True

    def acquire_lock(self, now, until):
        def effect():
            assert now < until < now + 60, "a watch of the dead outlives the next tick"
            if self.world.watched_until >= now:
                return False
            self.world.watched_until = until
            return True

        return self.call("acquire_lock", effect)

    def release_lock(self):
        def effect():
            self.world.watched_until = 0

        self.call("release_lock", effect)

    def note_denial(self, now):
        def effect():
            first, last = self.world.denials
            self.world.denials = (first if now - last <= 150 else now, now)
            return self.world.denials[0]

        return self.call("note_denial", effect)

    def write_state(self, state):
        def effect():
            previous = self.world.state
            if state.revision != (previous.revision if previous else 0) + 1:
                return False
            is_notice = previous is not None and state == previous.advance(previous.phase, notice=state.notice)
            if not is_notice:
                is_open = previous is None or previous.phase is Phase.LAUNCHED
                assert is_open, "D06: the adjuster spoke after a roster was published"
                invariants.check_verdict(self.world, previous, state)
            self.world.state = self.written = state
            self.world.writes.append(state)
            return True

        return self.call("write_state", effect)

    def signal(self, reason):
        def effect():
            invariants.i11_the_stack_hears_nothing_early(self.world, self.written, self.last_state)
            self.world.signals.append(reason)

        self.call("signal", effect)

    def notify(self, notification):
        def effect():
            told = self.written or self.last_state
            assert told is not None, "I11: the master was told before the item"
            assert notification.generation == told.generation, "I4: the notification tells of another generation"
            self.world.notifications.append(notification)

        self.call("notify", effect)
