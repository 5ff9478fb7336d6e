"""The state machine that searches the model for a history in which the adjuster breaks its promises."""

from dataclasses import dataclass

import hypothesis.strategies as st
import invariants
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model_invocation import invoke, warn
from scaling_model import MESSAGES, World

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole

roles = st.sampled_from([NodeRole.WORKER, NodeRole.WORKER, NodeRole.MASTER])
outcomes = st.sampled_from(["", "", *sorted(MESSAGES)])
lags = st.sampled_from([0.0, 0.0, 3.0, 9.5])
crashes = st.one_of(st.none(), st.none(), st.integers(0, 80))
duties = st.sampled_from(["master_publishes", "master_publishes", "master_forms", "master_adapts", "master_gives_up"])


@dataclass(frozen=True)
class Happening:
    """Something that happens in the world, as data: a history that is found is printed, and recorded."""

    what: str
    arguments: tuple
    options: dict

    def __call__(self, world):
        if self.what == "invoke":
            invoke(world, **self.options)
        else:
            getattr(world, self.what)(*self.arguments, **self.options)


def act(what, *arguments, **options):
    """Return what happens by a method of the world, or by an invocation of the adjuster."""
    return Happening(what, arguments, options)


happenings = st.one_of(
    st.builds(act, st.just("end_launch"), roles, outcomes),
    st.builds(act, st.just("react"), roles, listed=st.booleans()),
    st.builds(act, st.just("invoke"), crash_at=crashes, lag=lags),
    st.builds(act, st.just("lose_node"), roles),
    st.builds(act, st.just("end_terminations"), roles),
    st.builds(act, duties),
)
meanwhiles = st.one_of(st.just([]), st.lists(st.tuples(st.integers(0, 28), happenings), min_size=1, max_size=4))


class ClusterMachine(RuleBasedStateMachine):
    """Rules are what happens; the model checks each call, and `teardown` checks what must have come of it."""

    @initialize(
        minimum=st.sampled_from([0, 0, 1, 1, 2, 3]),
        workers=st.sampled_from([0, 1, 3, 3, 4, 5]),
        spare=st.integers(0, 2),
        late=st.sampled_from([None] * 6 + list(NodeRole)),
        hook=st.sampled_from(["", "", ":Wait", ":Proceed"]),
        master=st.sampled_from(["", "", "", "", "", "capacity"]),
        fate=st.sampled_from(["", "capacity", "capacity"]),
        is_manned=st.sampled_from([False, False, True]),
    )
    def begin(self, *, minimum, workers, spare, late, hook, master, fate, is_manned):
        self.fate = fate
        self.world = World(minimum=minimum, workers=workers, spare=spare)
        # What comes after the roster is another search: in it most of what comes before is over too soon.
        self.world.is_manned = is_manned
        for role, group in self.world.groups.items():
            group.exists = role is not late
            group.hook = hook
            self.world.forget_old_answers(group)
            self.world.react(role)
        self.world.end_launch(NodeRole.MASTER, master)

    @rule()
    def groups_appear(self):
        for group in self.world.groups.values():
            if not group.exists:
                group.exists = True
                self.world.changed(group)

    @rule(role=roles, ends=st.lists(outcomes, max_size=5), listed=st.booleans())
    def launches_end(self, role, ends, listed):
        self.world.react(role, listed=listed)
        for code in ends:
            self.world.end_launch(role, code)

    @rule(outcome=outcomes)
    def every_launch_ends(self, outcome):
        for role, group in self.world.groups.items():
            for _ in group.running("launch"):
                self.world.end_launch(role, outcome)

    @rule(role=roles, progress=st.integers(0, 3), outcome=outcomes)
    def node_dies(self, role, progress, outcome):
        self.world.lose_node(role)
        self.world.react(role)
        self.world.pass_time(10)
        if progress > 0:
            self.world.end_terminations(role)
        if progress > 1:
            self.world.react(role)
        if progress > 2:
            self.world.end_launch(role, outcome)
            invoke(self.world)

    @precondition(lambda self: self.world.is_manned)
    @rule(times=st.integers(1, 4))
    def workers_die_at_each_boot(self, times):
        for _ in range(times):
            for step in (self.world.react, self.world.end_launch, self.world.lose_node, self.world.react):
                step(NodeRole.WORKER)
            self.world.pass_time(60)
            self.world.end_terminations(NodeRole.WORKER)

    @rule(seconds=st.integers(1, 70))
    def time_passes(self, seconds):
        self.world.pass_time(seconds)

    @rule(index=st.integers(0, 20), again=st.booleans(), lag=lags, crash=crashes, meanwhile=meanwhiles)
    def deliver_event(self, index, again, lag, crash, meanwhile):
        event = self.world.box.pop(index % len(self.world.box)) if self.world.box else "test notification"
        invocation = invoke(self.world, crash_at=crash, lag=lag, meanwhile=meanwhile)
        if again or invocation.outcome == "crashed":
            self.world.box.append(event)

    @rule(lag=lags, crash=crashes, meanwhile=meanwhiles)
    def tick(self, lag, crash, meanwhile):
        self.world.pass_time(60)
        invoke(self.world, crash_at=crash, lag=lag, meanwhile=meanwhile)

    @rule()
    def events_are_lost(self):
        self.world.box.clear()

    @precondition(lambda self: self.world.is_manned)
    @rule(duty=duties)
    def master_works(self, duty):
        getattr(self.world, duty)()

    @precondition(lambda self: self.world.is_manned)
    @rule(crash=crashes)
    def capacity_block_ends(self, crash):
        warn(self.world, crash_at=crash)

    @rule(
        what=st.sampled_from(["desired", "minimum", "AZRebalance", "ReplaceUnhealthy", "resume"]),
        size=st.integers(0, 7),
    )
    def user_acts(self, what, size):
        if what == "desired":
            self.world.user_sets_desired(size)
        elif what == "minimum":
            self.world.user_sets_minimum(size)
        elif what == "resume":
            self.world.user_resumes()
        else:
            self.world.user_suspends(what)

    @invariant()
    def revisions_follow_each_other(self):
        world = getattr(self, "world", None)
        if world is not None:
            revisions = [state.revision for state in world.writes]
            assert revisions == list(range(1, len(revisions) + 1)), "I4: two writes of one revision"

    def teardown(self):
        world = getattr(self, "world", None)
        if world is None:
            return
        self.settle_world(world)
        invariants.i5_a_verdict_comes(world)
        if world.state.phase is Phase.LAUNCHED:
            invariants.i3_the_verdict_names_what_lives(world, world.state)
            invariants.i8_desired_is_what_lives(world.state, [(None, world.workers.observe())])
        invariants.b2_the_breaker_trips(world)
        assert not world.own_suspensions, "D15: a suspension was left behind"
        world.pass_time(120)
        before = world.record
        calls = invoke(world).changes + invoke(world).changes
        invariants.i10_again_is_the_same(before, world.record)
        invariants.i12_quiet_after_the_verdict(calls)

    def settle_world(self, world):
        """Let everything end the same way, lose every event, and tick."""
        world.user_suspended.discard("ReplaceUnhealthy")
        world.workers.suspended.discard("ReplaceUnhealthy")
        for group in world.groups.values():
            group.exists = True
            world.forget_old_answers(group)
        for _ in range(6):
            for role, group in world.groups.items():
                for _ in range(3):
                    world.react(role)
                    world.end_terminations(role)
                world.react(role)
                for _ in group.running("launch"):
                    world.end_launch(role, self.fate)
            world.pass_time(60)
            invoke(world)
