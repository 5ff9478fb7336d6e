"""The state machine that searches for a history in which the search among candidates breaks a promise."""

import hypothesis.strategies as st
from cluster_machine import act, crashes, lags
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from search_model import MASTER, WORKER, B, C, Pool, SearchWorld, search_ask, search_invoke

from deeplearning_contract.cluster_state import Phase

LEASE_SECONDS = 130
tags = st.sampled_from(["0", B, C])
roles = st.sampled_from([WORKER, WORKER, MASTER])
refusals = st.sampled_from(["capacity", "capacity", "capacity", "", "quota", "throttled", "volumes", "image"])
pools = st.builds(
    Pool,
    st.lists(st.tuples(st.sampled_from([0, 200, 500, 900]), st.integers(0, 4)), max_size=3).map(
        lambda steps: sorted(((0, 0), *steps), key=lambda step: step[0])
    ),
    refusals,
    st.sampled_from([True, True, True, False]),
)
happenings = st.one_of(
    st.builds(act, st.just("live_forth")),
    st.builds(act, st.just("search_invoke"), crash_at=crashes, lag=lags),
    st.builds(act, st.just("end_one"), tags, roles, st.sampled_from(["", "capacity"])),
    st.builds(act, st.just("react_all")),
)
meanwhiles = st.one_of(st.just([]), st.lists(st.tuples(st.integers(0, 40), happenings), min_size=1, max_size=4))


class SearchMachine(RuleBasedStateMachine):
    """Rules are what happens; the model checks each call, and `teardown` what must have come of it."""

    @initialize(
        first=pools,
        second=pools,
        third=pools,
        minimum=st.sampled_from([0, 1, 2, 3]),
        order=st.sampled_from([("0", B, C), ("0", C, B), ("0", B)]),
        stop_after=st.sampled_from([0, 0, 900]),
        crash=crashes,
        lag=lags,
    )
    def begin(self, *, first, second, third, minimum, order, stop_after, crash, lag):
        self.world = SearchWorld({"0": first, B: second, C: third}, minimum=minimum, stop_after=stop_after, order=order)
        self.stack_asks(workers=3, crash=crash, lag=lag, meanwhile=[])

    @rule(workers=st.integers(3, 5), crash=crashes, lag=lags, meanwhile=meanwhiles)
    def stack_asks(self, *, workers, crash, lag, meanwhile):
        if self.world.is_deleted:
            return
        event = self.world.stack_request("Update" if self.world.requested else "Create", workers)
        if search_ask(self.world, event, crash_at=crash, lag=lag, meanwhile=meanwhile).outcome == "crashed":
            self.world.pass_time(60)
            search_ask(self.world, event)

    @rule(index=st.integers(0, 9))
    def a_request_is_delivered_again(self, index):
        search_ask(self.world, self.world.requests[index % len(self.world.requests)])

    @precondition(lambda self: self.world.requested is not None)
    @rule(crash=crashes)
    def stack_is_deleted(self, crash):
        event = self.world.stack_request("Delete", 0)
        if search_ask(self.world, event, crash_at=crash).outcome == "crashed":
            self.world.pass_time(LEASE_SECONDS)
            search_ask(self.world, event)

    @rule(minutes=st.integers(1, 5))
    def minutes_pass(self, minutes):
        for _ in range(minutes):
            self.world.live_forth()
            self.world.pass_time(60)
            search_invoke(self.world)

    @rule(lag=lags, crash=crashes, meanwhile=meanwhiles)
    def tick(self, lag, crash, meanwhile):
        self.world.pass_time(60)
        search_invoke(self.world, crash_at=crash, lag=lag, meanwhile=meanwhile)

    @rule(lag=lags, crash=crashes, meanwhile=meanwhiles)
    def event_arrives(self, lag, crash, meanwhile):
        search_invoke(self.world, crash_at=crash, lag=lag, meanwhile=meanwhile)

    @rule(seconds=st.integers(1, 70))
    def time_passes(self, seconds):
        self.world.pass_time(seconds)

    @rule()
    def groups_live(self):
        self.world.live_forth()

    @rule()
    def launches_begin(self):
        self.world.react_all()

    @rule()
    def user_gives_up(self):
        """Lower what is asked to nothing, which nothing may raise again for the same request and candidate."""
        self.world.user_gives_up()

    @invariant()
    def only_one_candidate_has_capacity(self):
        world = getattr(self, "world", None)
        if world is not None:
            assert len(world.occupied()) <= 1, f"A1: {sorted(world.occupied())} have capacity at a time"

    def teardown(self):
        world = getattr(self, "world", None)
        if world is None or world.requested is None:
            return
        world.pass_time(LEASE_SECONDS)
        self.minutes_pass(60)
        if world.is_deleted or world.settings.stop_after_seconds:
            return
        given_up = world.has_given_up and not world.occupied()
        has_end = world.state is not None or given_up or world.holds_and_waits()
        assert has_end, "the time of the search is over, and there is no verdict"
        if world.state is not None and world.state.phase is Phase.LAUNCHED:
            assert not any(group.suspended for group in world.groups.values()), "a suspension was left behind"
