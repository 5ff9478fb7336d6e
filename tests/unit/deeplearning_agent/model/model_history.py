"""
Events of a cluster as data: a history that Hypothesis draws, shrinks and prints.

A history is a world and a list of events with the time between them. Afterwards the weather clears, everybody can talk
again and nothing more happens; then the cluster must come to rest as promised.
"""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from cluster_model import run_world
from model_aws import Weather
from model_happenings import HAPPENINGS

CALM_SECONDS = 4000
"""Long enough after the set-up time for every time-out of the protocol, one after another."""
STILL_SECONDS = 65
"""Longer than anybody waits before it looks again."""


@dataclass(frozen=True)
class Event:
    """Something that happens to the cluster, or to one of its machines."""

    after: float
    kind: str
    pick: int = 0
    """Index of the machine among those to which the event can happen."""
    value: float = 0.0


@dataclass(frozen=True)
class History:
    """A world and what happens in it."""

    seed: int
    workers: int
    minimum: int
    events: tuple[Event, ...]
    script_seconds: float | None = None
    world: dict = field(default_factory=dict, hash=False)


def play(history):
    """
    Let a history happen, and check that the cluster then comes to rest and stays quiet.

    Raises:
        AssertionError: A promise was broken.
    """
    options = {
        "seed": history.seed,
        "workers": history.workers,
        "minimum": history.minimum,
        "script_seconds": history.script_seconds,
        **history.world,
    }
    with run_world(**options) as world:
        for event in history.events:
            world.run(event.after)
            world.note(f"-- {event.kind} {event.pick} {event.value:g}")
            HAPPENINGS[event.kind](world, event)
        clear_up(world)
        come_to_rest(world)
        return world


def come_to_rest(world):
    """
    Let time pass until the cluster is as promised and nothing moves any more.

    Raises:
        AssertionError: It did not come to that, or went on doing something.
    """
    limit = world.scheduler.now + world.setup_seconds + CALM_SECONDS
    revision = -1
    while world.scheduler.now < limit:
        if not world.promises.find_unrest() and revision == world.read().revision:
            break
        revision = -1 if world.promises.find_unrest() else world.read().revision
        world.run(STILL_SECONDS)
    try:
        unrest = world.promises.find_unrest()
        assert not unrest, unrest
        world.promises.check_quiet(STILL_SECONDS)
    except AssertionError as error:
        world.explain(error)
        raise


def clear_up(world):
    """End everything that is out of order but the deaths."""
    world.set_weather(Weather())
    world.has_capacity = True
    for machine in world.machines.values():
        machine.calm()


@st.composite
def events(draw):
    """Draw one event; the time before it is short as often as it is long."""
    after = draw(st.sampled_from([0.0, 0.3, 2.0, 10.0, 30.0, 70.0]))
    value = draw(st.integers(0, 60))
    return Event(after, draw(st.sampled_from(sorted(HAPPENINGS))), draw(st.integers(0, 7)), value)


@st.composite
def histories(draw):
    """Draw a history."""
    workers = draw(st.integers(0, 5))
    return History(
        seed=draw(st.integers(0, 2**16)),
        workers=workers,
        minimum=draw(st.integers(0, workers)),
        events=(
            Event(draw(st.sampled_from([0.0, 25.0, 60.0, 90.0])), "old ring"),
            *draw(st.lists(events(), max_size=7)),
        ),
        script_seconds=draw(st.sampled_from([None, 20.0, 10_000.0])),
    )
