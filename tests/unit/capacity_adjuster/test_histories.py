"""Histories of the model, between the first verdict and the first membership, and after it."""

import invariants
import pytest
from model_invocation import RESERVATION, invoke, warn
from scaling_model import SICK, World
from test_crashes import MOST_CALLS, make_world, tick

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON

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


def lose_first(workers, hook=""):
    """Return a world whose first worker could not be launched, while the others are under way."""
    world = World(minimum=0, workers=workers)
    world.workers.hook = hook
    for role in NodeRole:
        world.react(role)
    world.end_launch(MASTER)
    world.end_launch(WORKER, "capacity")
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


@pytest.mark.fault(3)
@pytest.mark.defect("D02", "D16")
@pytest.mark.parametrize("hook", [":Wait", ":Proceed", ":Something"])
def test_nodes_that_a_lifecycle_hook_holds_are_on_their_way(hook):
    world = lose_first(3, hook)
    tick(world, 2)
    assert world.state is None
    for _ in range(2):
        world.end_launch(WORKER)
    assert len(read_until_stable(world).expected) == 3


@pytest.mark.fault(37)
@pytest.mark.defect("D04")
def test_a_look_that_is_ten_seconds_old_destroys_nothing():
    world = make_world(["", "", "capacity"])
    world.pass_time(30)
    world.react(WORKER)
    assert not invoke(world, lag=9.5).changes
    world.end_launch(WORKER)
    assert len(read_until_stable(world).expected) == 4


@pytest.mark.fault(10)
@pytest.mark.defect("D07")
def test_a_worker_that_is_lost_is_not_taken_for_an_old_failure():
    world = make_world(["", "capacity", ""])
    world.pass_time(20)
    world.react(WORKER)
    world.end_launch(WORKER)
    world.pass_time(20)
    world.lose_node(WORKER)
    world._terminate(world.workers, world.workers.nodes[0], SICK)
    world.end_terminations(WORKER)
    tick(world, 2)
    assert world.workers.desired == 3, "D07: a replacement was taken for a failed launch"
    world.react(WORKER)
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


@pytest.mark.fault(2)
def test_too_few_workers_after_the_verdict_fail_with_the_reason():
    world = launch(minimum=3)
    kill(world, WORKER, replacement="capacity")
    state = read_until_stable(world)
    assert state.phase is Phase.FAILED
    assert (
        "launched workers must be at least 3, got 2 of 3: InsufficientInstanceCapacity in eu-west-1a"
        in state.reason.cause
    )


@pytest.mark.fault(20)
@pytest.mark.defect("D06")
@pytest.mark.parametrize("is_formed", [False, True])
def test_nothing_that_happens_after_the_roster_changes_the_capacity(is_formed):
    world = launch(spare=2)
    world.master_publishes()
    if is_formed:
        world.master_forms()
    state = world.state
    world.user_sets_desired(5)
    world.react(WORKER)
    world.end_launch(WORKER, "capacity")
    kill(world, WORKER, replacement="capacity")
    kill(world, MASTER, replacement="capacity")
    assert read_until_stable(world) == state
    assert world.workers.desired == 5


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


def test_members_that_die_trip_nothing():
    world = form(5)
    for _ in range(5):
        kill(world, WORKER)
        invoke(world)
        world.master_adapts()
        invoke(world)
    read_until_stable(world)
    assert not world.workers.suspended


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


def test_workers_that_the_user_takes_away_trip_nothing():
    world = form(1, spare=6)
    world.user_sets_desired(7)
    world.react(WORKER)
    for _ in range(6):
        world.end_launch(WORKER)
    world.user_sets_desired(1)
    world.react(WORKER)
    world.end_terminations(WORKER)
    read_until_stable(world)
    assert not world.workers.suspended


def test_losses_half_an_hour_apart_trip_nothing():
    world = form()
    kill(world, WORKER)
    for _ in range(5):
        boot_in_vain(world, 1)
        world.pass_time(900)
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


def test_a_notice_outlives_the_next_verdict():
    world = launch()
    warn(world)
    kill(world, WORKER)
    state = read_until_stable(world)
    assert (state.generation, RESERVATION in state.notice) == (2, True)


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


@pytest.mark.fault(7)
@pytest.mark.parametrize("role", list(NodeRole))
def test_launches_that_are_throttled_at_first_cost_the_cluster_no_node(role):
    is_master = role is NodeRole.MASTER
    world = make_world(["", "", "" if is_master else "throttled"], master="throttled" if is_master else "")
    world.lambda_seconds = 120
    world.pass_time(30)
    world.react(role)
    world.end_launch(role, "throttled")
    tick(world, times=1)
    assert (world.state, world.signals, world.workers.desired) == (None, [], 3)
    world.react(role)
    world.end_launch(role)
    state = read_until_stable(world)
    assert (state.phase, len(state.expected), state.reason) == (Phase.LAUNCHED, 4, NO_REASON)
