"""The state machine that searches the model for a history in which the adjuster breaks its promises."""

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scaling_model import MESSAGES, World

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole

roles = st.sampled_from([NodeRole.WORKER, NodeRole.WORKER, NodeRole.MASTER])
outcomes = st.sampled_from(["", "", "capacity", *sorted(MESSAGES)])
lags = st.sampled_from([0.0, 0.0, 3.0, 9.5])
crashes = st.one_of(st.none(), st.none(), st.integers(0, 50))


def act(name, *arguments, **options):
    """Make something that happens in the world."""
    return lambda world: getattr(world, name)(*arguments, **options)


happenings = st.one_of(
    st.builds(lambda role, code: act("end_launch", role, code), roles, outcomes),
    st.builds(lambda role, listed: act("react", role, listed=listed), roles, st.booleans()),
    st.builds(lambda crash, lag: act("invoke", crash_at=crash, lag=lag), crashes, lags),
    st.builds(lambda role: act("lose_node", role), roles),
    st.builds(lambda role: act("end_terminations", role), roles),
)
meanwhiles = st.one_of(st.just([]), st.lists(st.tuples(st.integers(0, 28), happenings), min_size=1, max_size=4))


class ClusterMachine(RuleBasedStateMachine):
    """Rules are what happens; the model checks each call, and `teardown` checks that a verdict comes."""

    @initialize(
        minimum=st.integers(0, 3),
        workers=st.integers(0, 5),
        spare=st.integers(0, 2),
        late=st.sampled_from([None, None, None, *NodeRole]),
        master=st.sampled_from(["", "", "", "capacity"]),
        fate=st.sampled_from(["", "capacity", "capacity"]),
    )
    def begin(self, *, minimum, workers, spare, late, master, fate):
        self.fate = fate
        self.world = World(minimum=minimum, workers=workers, spare=spare)
        for role, group in self.world.groups.items():
            group.exists = role is not late
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

    @rule(role=roles, is_over=st.booleans(), is_replaced=st.booleans())
    def node_dies(self, role, is_over, is_replaced):
        self.world.lose_node(role)
        self.world.react(role)
        if is_over:
            self.world.end_terminations(role)
        if is_replaced:
            self.world.react(role)

    @rule(seconds=st.integers(1, 70))
    def time_passes(self, seconds):
        self.world.pass_time(seconds)

    @rule(index=st.integers(0, 20), again=st.booleans(), lag=lags, crash=crashes, meanwhile=meanwhiles)
    def deliver_event(self, index, again, lag, crash, meanwhile):
        event = self.world.box.pop(index % len(self.world.box)) if self.world.box else "test notification"
        outcome = self.world.invoke(crash_at=crash, lag=lag, meanwhile=meanwhile)
        if again or outcome == "crashed":
            self.world.box.append(event)

    @rule(lag=lags, crash=crashes, meanwhile=meanwhiles)
    def tick(self, lag, crash, meanwhile):
        self.world.pass_time(60)
        self.world.invoke(crash_at=crash, lag=lag, meanwhile=meanwhile)

    @rule()
    def events_are_lost(self):
        self.world.box.clear()

    @precondition(lambda self: self.world.state is None)
    @rule(what=st.sampled_from(["desired", "minimum", "AZRebalance", "ReplaceUnhealthy"]), size=st.integers(0, 7))
    def user_acts(self, what, size):
        if what == "desired":
            self.world.user_sets_desired(size)
        elif what == "minimum":
            self.world.user_sets_minimum(size)
        else:
            self.world.user_suspends(what)

    @invariant()
    def one_verdict(self):
        world = getattr(self, "world", None)
        if world is None:
            return
        assert len(world.writes) <= 1, "I4: more than one verdict"
        assert len(set(world.signals)) <= 1 or world.state is None or world.state.phase is Phase.FAILED

    def teardown(self):
        world = getattr(self, "world", None)
        if world is None:
            return
        self.settle_world(world)
        assert world.state is not None, "I5: no verdict once everything was quiet"
        assert not world.own_suspensions, "D15: a suspension was left behind"
        before = (world.adjustment, tuple(world.signals), tuple(world.rings), world.workers.desired)
        world.pass_time(120)
        for _ in range(2):
            world.invoke()
        after = (world.adjustment, tuple(world.signals), tuple(world.rings), world.workers.desired)
        assert before == after, "I12: not quiet after the verdict"

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
            world.invoke()
