"""
The histories that a search found for faults of the adjuster, with the least in them that still shows the fault.

Each is played as a check, and must break no promise. A search seldom meets them by itself.
"""

import functools

from cluster_machine import ClusterMachine
from request_machine import RequestMachine
from stop_machine import StopMachine

from deeplearning_contract.names import NodeRole

RECORDED = []
"""Every history of this module, to be played as a check."""


def record(machine):
    """Make a history a check: it plays the steps on a state machine, and looks at what has come of them."""

    def make_check(history):
        @functools.wraps(history)
        def play():
            state = machine()
            history(state)
            state.revisions_follow_each_other()
            state.teardown()

        RECORDED.append(play)
        return play

    return make_check


begin_stop = functools.partial(StopMachine.begin, fate="", is_manned=False)
begin_request = functools.partial(
    RequestMachine.begin, minimum=0, workers=0, fate="", stop_after=0, block="", crash=None, lag=0.0, meanwhile=[]
)
ask = functools.partial(RequestMachine.stack_asks, crash=None, is_crashed_again=False, lag=0.0, meanwhile=[])


def begin(state, *, minimum=0, workers=0, fate="", is_manned=False):
    """Begin with what is plain in all else."""
    state.begin(
        minimum=minimum, workers=workers, spare=0, late=None, hook="", master="", fate=fate, is_manned=is_manned
    )


@record(ClusterMachine)
def a_master_alone(state):
    begin(state)


@record(ClusterMachine)
def a_worker_without_which_it_goes_on(state):
    begin(state, workers=1, fate="capacity")


@record(ClusterMachine)
def a_worker_without_which_it_fails(state):
    begin(state, minimum=1, workers=1, fate="capacity")


@record(ClusterMachine)
def a_look_before_the_launch_fails(state):
    begin(state, workers=1, fate="capacity")
    state.tick(crash=None, lag=0.0, meanwhile=[])


@record(ClusterMachine)
def a_worker_dies_and_has_no_successor(state):
    begin(state, workers=3)
    state.node_dies(role=NodeRole.WORKER, progress=3, outcome="capacity")


@record(ClusterMachine)
def the_master_dies_and_has_no_successor(state):
    begin(state, fate="capacity")
    state.node_dies(role=NodeRole.MASTER, progress=0, outcome="")


@record(ClusterMachine)
def one_worker_dies_before_it_joins(state):
    begin(state, workers=1)
    state.launches_end(role=NodeRole.WORKER, ends=[""], listed=False)
    state.node_dies(role=NodeRole.WORKER, progress=0, outcome="")


@record(ClusterMachine)
def three_workers_die_before_they_join(state):
    begin(state, workers=1, is_manned=True)
    state.workers_die_at_each_boot(times=3)


@record(RequestMachine)
def a_master_is_asked_for(state):
    begin_request(state, is_manned=False)


@record(RequestMachine)
def more_is_asked_for_than_the_group_takes(state):
    begin_request(state, is_manned=False)
    ask(state, workers=4)


@record(RequestMachine)
def an_update_dies_and_the_next_one_reads_what_is_old(state):
    begin_request(state, is_manned=True)
    ask(state, workers=0)
    ask(state, workers=1)
    ask(state, workers=0, crash=0)
    ask(state, workers=1, lag=3.0)


@record(StopMachine)
def the_time_is_over(state):
    begin_stop(state, workers=1, stop_after=120)


@record(StopMachine)
def the_budget_is_used_up_and_told_twice(state):
    begin_stop(state, workers=0, stop_after=0)
    state.budget_is_used_up(crash=None, is_redelivered=True, lag=0.0, meanwhile=[])


@record(StopMachine)
def the_budget_is_used_up_while_the_stack_is_deleted(state):
    begin_stop(state, workers=1, stop_after=3600)
    state.minutes_pass(minutes=8)
    state.minutes_pass(minutes=3)
    state.stack_is_deleted()
    state.budget_is_used_up(crash=None, is_redelivered=False, lag=0.0, meanwhile=[])
