"""
Invocations of the adjuster that alternate: each makes some calls, waits while others make theirs, and goes on.

Each runs in a thread of its own, and exactly one thread runs at a time: the order is that of the schedule alone.
"""

import threading

from model_invocation import Crash

MOST_CALLS = 400
"""More than an invocation makes."""


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
        self.left = 0
        self.go, self.stop = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def advance(self, calls=MOST_CALLS):
        """Let it make some calls, or fewer if it ends before; raise what it raises."""
        if not self.is_over:
            self.left = calls
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

    def wait(self, _world):
        """Wait before a call until it is allowed."""
        if not self.left:
            self.stop.release()
            self.go.acquire()
        if self.is_dead:
            raise Crash
        self.left -= 1


def alternate(world, begins, schedule):
    """
    Run invocations by a schedule, and then each to its end; return them.

    Args:
        world: The world.
        begins: What runs each of them, as for `Alternating`.
        schedule: Pairs of an invocation's number and the calls that it makes next, and what happens between them.
    """
    alternating = [Alternating(world, begin) for begin in begins]
    try:
        for step in schedule:
            if callable(step):
                step(world)
            else:
                number, calls = step
                alternating[number].advance(calls)
        for each in alternating:
            each.advance()
    finally:
        for each in alternating:
            each.die()
    return [each.invocation for each in alternating]
