"""
The promises of the capacity controller, each a check of its own against the truth of the model.

The numbers are those of the catalogue of faults; `B` is the breaker's, `S` the stop's, `E` the events'. A broken
promise is an AssertionError that begins with its number.
"""

import functools

from scaling_model import FAILURE_SECONDS, MOST_FAILURES, SETTLE_SECONDS, is_failure, is_quiet, live_in

from deeplearning_contract.cluster_state import Phase

INVARIANTS = {}
"""Number -> the check."""


def invariant(check):
    """Register a check by the number that its name begins with, and put that number before its words."""
    number = check.__name__.split("_")[0].upper()

    @functools.wraps(check)
    def checked(*arguments, **options):
        try:
            check(*arguments, **options)
        except AssertionError as error:
            raise AssertionError(f"{number}: {error.args[0]}") from None

    assert number not in INVARIANTS
    INVARIANTS[number] = checked
    return checked


@invariant
def i1_desired_keeps_to_the_policy(world, desired):
    least, most = world.floor, world.workers.max_size
    assert least <= desired <= most, f"desired must be from {least} to {most}, got {desired}"


@invariant
def i2_desired_is_only_lowered(world, desired):
    assert desired < world.workers.desired, f"desired must be lowered, got {world.workers.desired} -> {desired}"


@invariant
def i3_the_verdict_names_what_lives(world, state, moments=None):
    moments = moments or [(world.master.observe(), world.workers.observe())]
    found = [(*live_in(master), *live_in(workers)) for master, workers in moments]
    assert state.expected in found, f"expected must be what lives, got {state.expected}, live {found[-1]}"


@invariant
def i4_each_generation_is_one_membership(previous, state):
    assert state.revision == 1 + (previous.revision if previous else 0), "a revision was left out or used twice"
    if previous is None:
        assert state.generation == 1, "the first generation must be 1"
        return
    is_new = (previous.expected, previous.members) != (state.expected, state.members)
    is_said_again = previous.phase is state.phase is Phase.LAUNCHED and state.notice == previous.notice
    assert state.generation >= previous.generation, "a generation must not fall"
    if state.phase is Phase.LAUNCHED and is_new:
        assert state.generation == previous.generation + 1, "another membership must have another generation"
    assert is_new or not is_said_again, "the same verdict must not be given twice"


@invariant
def i5_a_verdict_comes(world):
    assert world.state is not None, "everything is quiet, and there is no verdict"


@invariant
def i6_nothing_is_decided_while_anything_runs(world, state=None, moments=()):
    if state is None:
        assert not world.workers.running("launch"), "the shrink came while a launch was in progress"
        return
    quiet = [pair for pair in moments if all(map(is_quiet, pair)) and len(live_in(pair[0])) == 1]
    expected = [(*live_in(master), *live_in(workers)) for master, workers in quiet]
    assert state.expected in expected, "the verdict came while something was in progress"


@invariant
def i7_a_shrink_terminates_nothing(world, desired):
    live = len(world.workers.live)
    assert live <= desired, f"desired {desired} terminates one of {live} healthy nodes"


@invariant
def i8_desired_is_what_lives(state, moments):
    count = len(state.expected) - 1
    assert any(workers.desired == count for _, workers in moments), f"{count} workers launched, and desired is another"


@invariant
def i9_the_order_says_nothing(verdicts):
    assert len(set(verdicts)) == 1, f"the verdict must not depend on the order, got {set(verdicts)}"


@invariant
def i10_again_is_the_same(before, after):
    assert before == after, f"a further invocation must change nothing, got {before} -> {after}"


@invariant
def i11_the_stack_hears_nothing_early(world, written, read):
    assert written is None, "the stack was told after the verdict, and before any node was published"
    is_open = read is None or read.phase is Phase.LAUNCHED
    assert is_open or world.state.phase is Phase.FAILED, "a cluster that is the master's was failed"


@invariant
def i12_quiet_after_the_verdict(calls):
    assert not calls, f"nothing has changed, and yet {calls} was called"


@invariant
def b1_the_breaker_trips_for_a_cause(world):
    lost = world.losses(FAILURE_SECONDS)
    assert len(lost) >= MOST_FAILURES, f"launches were suspended after {len(lost)} workers that never joined"


@invariant
def b2_the_breaker_trips(world):
    is_over = world.state is not None and world.state.phase is Phase.FAILED
    lost = world.losses(FAILURE_SECONDS - 600)
    is_held = "Launch" in world.workers.suspended
    assert is_held or is_over or len(lost) < MOST_FAILURES, f"{len(lost)} workers died and launches go on"


@invariant
def s1_a_stop_has_its_time(world):
    deadline = world.allowed_from + world.settings.stop_after_seconds
    is_over = world.settings.stop_after_seconds > 0 and world.now >= deadline
    assert is_over or world.is_budget_spent, f"the cluster was stopped {deadline - world.now:.0f} s before its time"
    assert not any(group.is_deleting for group in world.groups.values()), "a stack that is deleted was stopped"


@invariant
def s2_a_stop_and_a_shrink_exclude_each_other(world, *, is_stop):
    is_shrinking = world.adjustment is not None and world.adjustment.is_open
    assert not (is_stop and is_shrinking), "a shrink under way may raise again what the stop lowers"
    is_stopped = world.stop is not None and world.stop.is_stopped
    assert is_stop or not is_stopped, "a shrink came after the cluster was stopped"


@invariant
def s3_a_stop_comes(world):
    high = [group.role.value for group in world.groups.values() if group.desired > group.min_size]
    assert not high, f"the time is over, and these groups go on: {high}"


@invariant
def s4_a_stop_is_reported_once(world, stops):
    assert len(world.events) == stops, f"{stops} stops became {len(world.events)} events"


@invariant
def w1_no_more_is_asked_for_than_requested(world, role, desired):
    wanted = world.wanted(role)
    assert desired <= wanted, f"{wanted} were requested of {role.value}, and {desired} are asked for"


@invariant
def w2_nobodys_own_scaling_is_overwritten(role, by_hand):
    assert role not in by_hand, f"the user had scaled {role.value} by hand since the request was read"


@invariant
def w3_nothing_is_asked_for_after_the_end(world):
    is_going = any(group.is_deleting for group in world.groups.values())
    is_over = world.is_deleted or is_going
    assert not is_over, "capacity was asked for of a cluster that is deleted"
    is_failed = world.state is not None and world.state.phase is Phase.FAILED
    assert not is_failed, "capacity was asked for of a cluster that has failed"


@invariant
def w4_the_request_is_carried_out(world):
    is_failed = world.state is not None and world.state.phase is Phase.FAILED
    is_stopped = world.stop is not None and (world.stop.is_open or world.stop.is_stopped)
    if world.is_deleted or is_failed or is_stopped:
        return
    assert not world.requested.is_open, "the request is still open"
    for role, group in world.groups.items():
        is_shrunk = role.value == "worker" and world.adjustment is not None
        is_free = role in world.by_hand or is_shrunk or world.had_capacity
        assert is_free or group.desired == world.wanted(role), (
            f"{role.value} has {group.desired}, not what was requested"
        )


@invariant
def w5_a_request_gives_way(world):
    is_shrinking = world.adjustment is not None and world.adjustment.is_open
    assert not is_shrinking, "a shrink under way may lower again what is raised"
    is_up = any(group.desired > group.min_size for group in world.groups.values())
    is_stopped = world.stop is not None and world.stop.is_stopped and not is_up
    assert not is_stopped, "a stopped cluster was raised"


@invariant
def e1_a_failure_is_reported_once(world, event):
    said = world.state.reason if world.state is not None and world.state.phase is Phase.FAILED else None
    assert event.reason == said, "a failure was told that the item does not say"
    assert world.failures_told == 0, "a failure was told twice"


def check_verdict(world, previous, state):
    """Hold a verdict against everything that was true since the look before the last one."""
    since = world.now - SETTLE_SECONDS
    pairs = [(m, w) for m in world.master.shots_since(since) for w in world.workers.shots_since(since) if m and w]
    i4_each_generation_is_one_membership(previous, state)
    assert state.requested == 1 + world.asked, f"requested was {1 + world.asked}, the item says {state.requested}"
    assert len(str(state.reason)) <= 1000
    if previous is not None:
        kept = (state.notice, state.departed, state.run_ended, state.members, state.user_key)
        was = (previous.notice, previous.departed, previous.run_ended, previous.members, previous.user_key)
        assert kept == was, "what is not the adjuster's to say was changed"
    if state.phase is Phase.LAUNCHED:
        count = len(state.expected) - 1
        i3_the_verdict_names_what_lives(world, state, pairs)
        i6_nothing_is_decided_while_anything_runs(world, state, pairs)
        i8_desired_is_what_lives(state, pairs)
        assert count >= min(world.floor, world.asked), "I1: success below the minimum"
        assert bool(state.reason) == (count < world.asked), "D09: a smaller cluster needs a reason, and only that"
    else:
        assert state.expected == ()
        assert state.reason, "D09: failed without a reason"
        assert world.signals[-1:] == [str(state.reason)], "D08: failed without telling the stack first"
        is_broken = world.breaker is not None and world.breaker.is_tripped and state.reason == world.breaker.reason
        if is_broken:
            b1_the_breaker_trips_for_a_cause(world)
        is_vain = world.block is not None and state.reason.cause.endswith(f"got {world.block.state}")
        assert is_broken or is_vain or any(is_failure(world, *pair) for pair in pairs), "failed without a cause"
