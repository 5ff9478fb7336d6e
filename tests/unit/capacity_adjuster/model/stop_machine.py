"""The state machine that searches for a history in which a stop comes early, late, twice or in the way of others."""

import hypothesis.strategies as st
import invariants
from cluster_machine import ClusterMachine, crashes, lags, meanwhiles
from hypothesis.stateful import initialize, precondition, rule
from model_invocation import invoke
from scaling_model import World

from deeplearning_contract.names import NodeRole

BUDGET_TOPIC = "arn:aws:sns:us-east-1:123456789012:budget"
LEASE_SECONDS = 70
"""Longer than the lease of an invocation of the model."""


class StopMachine(ClusterMachine):
    """The world of the other machine, in which the time or the budget of the cluster comes to an end."""

    @initialize(
        workers=st.sampled_from([0, 1, 3, 4]),
        stop_after=st.sampled_from([0, 120, 300, 300, 600, 3600]),
        fate=st.sampled_from(["", "capacity"]),
        is_manned=st.booleans(),
    )
    def begin(self, *, workers, stop_after, fate, is_manned):
        self.fate = fate
        self.messages = 0
        self.world = World(minimum=0, workers=workers, spare=1, stop_after=stop_after, budget=BUDGET_TOPIC)
        self.world.is_manned = is_manned
        for role, group in self.world.groups.items():
            self.world.forget_old_answers(group)
            self.world.react(role)
        self.world.end_launch(NodeRole.MASTER)

    @rule(crash=crashes, lag=lags, meanwhile=meanwhiles, is_redelivered=st.booleans())
    def budget_is_used_up(self, crash, lag, meanwhile, is_redelivered):
        self.world.is_budget_spent = True
        self.messages += 1
        message = f"message-{self.messages}"
        invocation = invoke(self.world, crash_at=crash, lag=lag, meanwhile=meanwhile, message_id=message)
        if invocation.outcome == "crashed" or is_redelivered:
            self.world.pass_time(LEASE_SECONDS)
            invoke(self.world, message_id=message)

    @rule(desired=st.integers(0, 4))
    def user_goes_on(self, desired):
        self.world.user_starts_again(desired)

    @rule(minutes=st.integers(1, 8))
    def minutes_pass(self, minutes):
        for _ in range(minutes):
            for role in NodeRole:
                self.world.react(role)
                self.world.end_terminations(role)
            self.world.pass_time(60)
            invoke(self.world)

    @precondition(lambda self: self.world.now > self.world.allowed_from + 600)
    @rule()
    def stack_is_deleted(self):
        self.world.user_deletes_the_stack()

    def teardown(self):
        world = getattr(self, "world", None)
        if world is None:
            return
        is_deleted = any(group.is_deleting for group in world.groups.values())
        world.pass_time(LEASE_SECONDS)
        self.minutes_pass(3)
        if not world.settings.stop_after_seconds or is_deleted:
            return
        world.pass_time(world.settings.stop_after_seconds)
        self.minutes_pass(2)  # Two ticks, and one more for a shrink that it waited for.
        invariants.s3_a_stop_comes(world)
        before, stops = world.record, len(world.events)
        self.minutes_pass(3)
        invariants.i10_again_is_the_same(before, world.record)
        self.scale_up_again(stops)

    def scale_up_again(self, stops):
        """Go on with the stopped cluster: it has all of its time anew, and is stopped again after that."""
        world, stop_after = self.world, self.world.settings.stop_after_seconds
        world.pass_time(61)
        world.user_starts_again(1)
        if not any(group.desired > group.min_size for group in world.groups.values()):
            return
        begun = world.now
        invoke(world)
        while world.now + 60 < begun + stop_after:
            world.pass_time(60)
            invoke(world)
            assert any(group.desired > group.min_size for group in world.groups.values()), "S1: stopped early"
        world.pass_time(60)
        self.minutes_pass(2)
        invariants.s3_a_stop_comes(world)
        invariants.s4_a_stop_is_reported_once(world, stops + 1)
