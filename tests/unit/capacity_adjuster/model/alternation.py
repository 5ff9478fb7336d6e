"""
Invocations of the adjuster that alternate: each makes some calls, waits while others make theirs, and goes on.

Each runs in a thread of its own, and exactly one thread runs at a time: the order is that of the schedule alone.
"""

import threading
from typing import NamedTuple

from model_invocation import MUTATING, Crash

MOST_CALLS = 400
"""More than an invocation makes."""


class Turn(NamedTuple):
    """Calls that an invocation makes before it waits."""

    number: int
    """Number of the invocation."""
    count: int
    """Number of its next changes; it waits before the change that follows them."""
    is_every_call: bool = False
    """True to count every call, and not only the changes."""


class Alternating:
    """
    An invocation that makes its calls when it is told to.

    Args:
        world: The world.
        begin: What runs the invocation in a world; it takes `meanwhile`, as `search_invoke` does.
    """

    def __init__(self, world, begin):
        self.world = world
        self.begin = begin
        self.invocation = self.error = None
        self.is_over = self.is_dead = False
        self.left, self.is_every_call = 0, True
        self.go, self.stop = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def advance(self, count=MOST_CALLS, *, is_every_call=True):
        """Let it make some calls, or fewer if it ends before; raise what it raises."""
        if not self.is_over:
            self.left, self.is_every_call = count, is_every_call
            self.go.release()
            self.stop.acquire()
        if self.error is not None:
            raise self.error

    def die(self):
        """End it where it is."""
        self.is_dead, self.error = True, None
        self.advance()
        self.thread.join()

    def work(self):
        """Run the invocation, in its thread."""
        self.go.acquire()
        try:
            self.invocation = self.begin(self.world, meanwhile=[(number, self.wait) for number in range(MOST_CALLS)])
        except BaseException as error:  # noqa: BLE001 - the thread that schedules raises it
            self.error = error
        self.is_over = True
        self.stop.release()

    def wait(self, world):
        """Wait before a call until it is allowed."""
        name = world.calling
        while not self.left and self.counts(name):
            self.stop.release()
            self.go.acquire()
        if self.is_dead:
            raise Crash
        self.left -= self.counts(name)

    def counts(self, name):
        return self.is_every_call or name in MUTATING


def alternate(world, begins, schedule):
    """
    Run invocations by a schedule, and then each to its end; return them.

    Args:
        world: The world.
        begins: What runs each of them, as for `Alternating`.
        schedule: Turns, and what happens in the world between them.
    """
    alternating = [Alternating(world, begin) for begin in begins]
    try:
        for step in schedule:
            if isinstance(step, Turn):
                alternating[step.number].advance(step.count, is_every_call=step.is_every_call)
            else:
                step(world)
        for each in alternating:
            each.advance()
    finally:
        for each in alternating:
            each.die()
    return [each.invocation for each in alternating]
