"""The state machine that searches for a history in which capacity is asked for wrongly, twice, or after the end."""

from dataclasses import replace

import hypothesis.strategies as st
import invariants
from cluster_machine import ClusterMachine, crashes, lags, meanwhiles
from hypothesis.stateful import initialize, precondition, rule
from model_invocation import RESERVATION, ask, invoke
from scaling_model import World

from deeplearning_contract.capacity_block import CapacityBlock
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole

LEASE_SECONDS = 130
"""Longer than the lease of an invocation of this machine."""
SECONDS_BETWEEN_REQUESTS = 5


class RequestMachine(ClusterMachine):
    """The world of the other machine before capacity was asked for, and a stack that asks for it."""

    @initialize(
        minimum=st.sampled_from([0, 1, 2]),
        workers=st.sampled_from([0, 1, 3]),
        fate=st.sampled_from(["", "", "capacity"]),
        stop_after=st.sampled_from([0, 0, 900]),
        block=st.sampled_from(["", "", "scheduled"]),
        is_manned=st.booleans(),
        crash=crashes,
        lag=lags,
        meanwhile=meanwhiles,
    )
    def begin(self, *, minimum, workers, fate, stop_after, block, is_manned, crash, lag, meanwhile):
        self.fate = fate
        self.world = World(minimum=min(minimum, workers), workers=workers, spare=3, stop_after=stop_after)
        self.world.is_manned = is_manned
        self.world.lambda_seconds = 120
        self.world.wait_for_the_stack()
        self.world.block = CapacityBlock(RESERVATION, block, int(self.world.now), 0) if block else None
        self.stack_asks(workers=workers, crash=crash, lag=lag, meanwhile=meanwhile, is_crashed_again=False)

    @rule(workers=st.integers(0, 6), crash=crashes, lag=lags, meanwhile=meanwhiles, is_crashed_again=st.booleans())
    def stack_asks(self, *, workers, crash, lag, meanwhile, is_crashed_again):
        """Deploy another count; Lambda tries again what crashes."""
        if self.world.is_deleted:
            return
        # A rollback follows its update within seconds, while reads are still older; a third deployment does not.
        self.world.pass_time(SECONDS_BETWEEN_REQUESTS)
        event = self.world.stack_request("Update" if self.world.requested else "Create", workers)
        invocation = ask(self.world, event, crash_at=crash, lag=lag, meanwhile=meanwhile)
        if invocation.outcome == "crashed":
            self.world.pass_time(60)
            ask(self.world, event, crash_at=crash if is_crashed_again else None)

    @rule(index=st.integers(0, 9))
    def a_request_is_delivered_again(self, index):
        if self.world.requests:
            ask(self.world, self.world.requests[index % len(self.world.requests)])

    @precondition(lambda self: self.world.requested is not None)
    @rule(crash=crashes, meanwhile=meanwhiles)
    def stack_is_deleted(self, crash, meanwhile):
        event = self.world.stack_request("Delete", 0)
        if ask(self.world, event, crash_at=crash, meanwhile=meanwhile).outcome != "crashed":
            return
        self.world.pass_time(LEASE_SECONDS)
        ask(self.world, event)

    @precondition(lambda self: self.world.block is not None)
    @rule()
    def block_begins(self):
        self.world.block = replace(self.world.block, state="active")

    @rule(desired=st.integers(0, 6))
    def user_scales_by_hand(self, desired):
        self.world.user_sets_desired(desired)

    def teardown(self):
        world = getattr(self, "world", None)
        if world is None:
            return
        if not world.has_request:  # Each attempt died before it had written anything: then CloudFormation waits.
            return
        world.pass_time(LEASE_SECONDS)
        invoke(world)
        world.pass_time(LEASE_SECONDS)
        for _ in range(3):
            self.end_activities()
            world.pass_time(60)
            invoke(world)
        invariants.w4_the_request_is_carried_out(world)
        is_over = world.is_deleted or world.has_ended or (world.state and world.state.phase is Phase.FAILED)
        before = world.record
        invoke(world)
        if is_over:
            assert [world.groups[role].desired for role in NodeRole] == [before[6], before[7]]

    def end_activities(self):
        """End what runs, since a request that died twice waits for that."""
        for role, group in self.world.groups.items():
            self.world.end_terminations(role)
            for _ in group.running("launch"):
                self.world.end_launch(role)
