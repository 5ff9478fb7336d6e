"""Histories of the model, between the first verdict and the first membership, and after it."""

import invariants
import pytest
from model_invocation import RESERVATION, invoke, warn
from test_crashes import MOST_CALLS, make_world, tick

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole

pytestmark = pytest.mark.usefixtures("silence")
WORKER, MASTER = NodeRole.WORKER, NodeRole.MASTER


def launch(workers=3, *, minimum=1, spare=0):
    """Return a world whose adjuster has said `launched`."""
    world = make_world([""] * workers, minimum=minimum)
    world.workers.max_size += spare
    world.forget_old_answers(world.workers)
    invoke(world)
    assert world.state.phase is Phase.LAUNCHED
    return world


def form(workers=3, **options):
    """Return a world whose master has formed the cluster."""
    world = launch(workers, **options)
    world.master_publishes()
    world.master_forms()
    return world


def kill(world, role, *, replacement=""):
    """Let a node die and its group try to replace it."""
    world.pass_time(20)
    world.lose_node(role)
    world.react(role)
    world.pass_time(20)
    world.end_terminations(role)
    world.react(role)
    world.pass_time(20)
    world.end_launch(role, replacement)


def boot_in_vain(world, times):
    """Let the newest worker die before it joins, again and again."""
    for _ in range(times):
        world.pass_time(60)
        sick = world.workers.nodes[-1]
        sick.health = "Unhealthy"
        world.changed(world.workers)
        world.react(WORKER)
        world.pass_time(20)
        world.end_terminations(WORKER)
        world.react(WORKER)
        world.end_launch(WORKER)
        invoke(world)


def read_until_stable(world):
    """Tick until nothing changes, and hold the end to the promises."""
    tick(world)
    invariants.i5_a_verdict_comes(world)
    if world.state.phase is Phase.LAUNCHED:
        invariants.i3_the_verdict_names_what_lives(world, world.state)
    before = world.record
    world.pass_time(120)
    calls = invoke(world).changes
    invariants.i10_again_is_the_same(before, world.record)
    invariants.i12_quiet_after_the_verdict(calls)
    return world.state


@pytest.mark.fault(37)
@pytest.mark.defect("D04")
def test_a_look_that_is_ten_seconds_old_destroys_nothing():
    world = make_world(["", "", "capacity"])
    world.pass_time(30)
    world.react(WORKER)
    assert not invoke(world, lag=9.5).changes
    world.end_launch(WORKER)
    assert len(read_until_stable(world).expected) == 4


@pytest.mark.fault(43)
@pytest.mark.defect("D47")
@pytest.mark.parametrize("role", [WORKER, MASTER])
def test_a_node_that_dies_before_the_roster_is_replaced_and_expected_anew(role):
    world = launch()
    first = world.state
    kill(world, role)
    state = read_until_stable(world)
    assert (state.generation, state.revision, state.phase) == (2, 2, Phase.LAUNCHED)
    assert len(set(state.expected) - set(first.expected)) == 1
    assert [notification.generation for notification in world.notifications] == [1, 2]


@pytest.mark.fault(1)
def test_a_second_shrink_remembers_what_was_asked_for_at_first():
    world = make_world(["", "", "capacity", ""])
    invoke(world)
    assert world.workers.desired == 3
    kill(world, WORKER, replacement="capacity")
    state = read_until_stable(world)
    assert (state.requested, len(state.expected), world.workers.desired) == (5, 3, 2)


@pytest.mark.fault(36, 46)
@pytest.mark.parametrize("replacement", ["", "capacity"])
def test_a_master_that_publishes_between_any_two_calls_keeps_what_it_published(replacement):
    for position in range(MOST_CALLS):
        world = launch()
        kill(world, WORKER, replacement=replacement)
        invoke(world, meanwhile=[(position, lambda world: world.master_publishes())])
        world.master_publishes()
        published = world.state
        assert published.phase is Phase.PUBLISHED
        assert [member.instance_id for member in published.members] == list(published.expected)
        assert read_until_stable(world) == published
        assert not world.workers.suspended
        assert world.workers.desired >= len(world.workers.live)


def test_a_whole_cluster_of_members_that_dies_at_once_trips_nothing():
    """The state item remembers twenty departures; the breaker's own record remembers the others."""
    world = form(30)
    invoke(world)
    for _ in range(30):
        world.lose_node(WORKER)
    world.react(WORKER)
    world.end_terminations(WORKER)
    world.master_adapts()
    assert len(world.state.departed) == 20
    invoke(world)
    world.react(WORKER)
    for _ in range(30):
        world.end_launch(WORKER)
    world.master_adapts()
    read_until_stable(world)
    assert not world.workers.suspended


@pytest.mark.fault(33)
def test_a_crash_around_any_call_of_the_breaker_changes_nothing_in_the_end():
    for crash_at in range(2 * MOST_CALLS):
        world = form()
        kill(world, WORKER)
        boot_in_vain(world, 2)
        world.pass_time(60)
        world.workers.nodes[-1].health = "Unhealthy"
        world.react(WORKER)
        invoke(world, crash_at=crash_at)
        read_until_stable(world)
        assert world.workers.suspended == {"Launch"}
        assert world.breaker.is_tripped


def test_a_user_who_resumes_the_launches_starts_a_new_count():
    world = form()
    kill(world, WORKER)
    boot_in_vain(world, 3)
    world.pass_time(60)
    world.user_resumes()
    world.react(WORKER)
    read_until_stable(world)
    assert not world.workers.suspended, "the old losses were counted again"
    world.end_launch(WORKER)
    boot_in_vain(world, 2)
    read_until_stable(world)
    assert not world.workers.suspended
    boot_in_vain(world, 1)
    read_until_stable(world)
    assert world.workers.suspended == {"Launch"}, "the breaker works only once"


def test_the_end_of_a_capacity_block_is_reported_in_any_phase():
    world = launch()
    for step in (world.master_publishes, world.master_forms, lambda: None):
        before = world.state
        warn(world)
        assert RESERVATION in world.state.notice
        assert world.state.generation == before.generation == world.notifications[-1].generation
        step()
    assert [state.notice != "" for state in world.writes] == [False, True, True, True]


CAUSES = {
    "no worker launches": (["capacity", "capacity", "capacity"], ""),
    "too few workers launch": (["", "quota", "quota"], ""),
    "the image is gone": (["image", "image", "image"], ""),
    "the master does not launch": (["", "", ""], "capacity"),
    "the master may not launch": (["", "", ""], "denied"),
}


@pytest.mark.fault(2, 5, 6, 7, 8, 13)
@pytest.mark.defect("D08", "D09")
@pytest.mark.parametrize("is_event_lost", [False, True])
@pytest.mark.parametrize("cause", CAUSES)
def test_the_stack_hears_the_reason_within_a_minute_of_its_cause(cause, is_event_lost):
    """Of its event, or of the timer's next tick when that is lost; the times are the model's."""
    outcomes, master = CAUSES[cause]
    world = make_world(outcomes, minimum=2, master=master)
    world.lambda_seconds = 120
    world.pass_time(60 if is_event_lost else 0)
    since = world.now
    invoke(world)
    invariants.i5_a_verdict_comes(world)
    assert world.state.phase is Phase.FAILED
    assert world.signals == [str(world.state.reason)]
    assert world.now - since <= 60
