"""
Virtual time for code that blocks: one thread an agent, of which one runs at a time.

Whoever waits hands the baton to whoever is due next, so that a second of the model costs nothing and the same seed
gives the same history. A task that is killed ends at the point where it waits, like a process at SIGKILL: its `finally`
clauses run, because Python has no other way to leave a thread, but nothing that they call has an effect.
"""

import heapq
import itertools
import random
import threading

from deeplearning_node.deadline import Clock


class Killed(BaseException):
    """The task's process is gone; no `except Exception` of the code under test hides it."""


class BrokenPromise(BaseException):
    """A check of the model failed; no `except Exception` of the code under test hides it."""


def require(is_kept, message):
    """
    Check a promise.

    Raises:
        BrokenPromise: It is broken; the run ends with the message as an AssertionError.
    """
    if not is_kept:
        raise BrokenPromise(message)


class Task:
    """One thread that runs only while it has the baton."""

    def __init__(self, scheduler, name, action):
        self.name = name
        self.is_killed = False
        self.is_over = False
        self.due = 0
        """Number of the event that wakes it; older ones are stale."""
        self._scheduler = scheduler
        self._action = action
        self._gate = threading.Lock()
        self._gate.acquire()
        self._thread = None

    def resume(self):
        """Give this task the baton."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        else:
            self._gate.release()

    def pause(self):
        """Wait for the baton."""
        self._gate.acquire()

    def join(self):
        """Wait for the thread's end."""
        if self._thread is not None:
            self._thread.join()

    def _run(self):
        try:
            if not self.is_killed:
                self._action()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the test must see it, whatever it is
            self._scheduler.fail(error)
        self.is_over = True
        self._scheduler.leave()


class Scheduler:
    """The clock of a model and the tasks and events on it."""

    def __init__(self, seed):
        self.now = 0.0
        self.random = random.Random(seed)  # noqa: S311 - it plays, and must play the same again
        self.current = None
        self.failure = None
        self.switches = 0
        self._numbers = itertools.count(1)
        self._events = []
        self._tasks = set()
        self._until = 0.0
        self._is_closing = False
        self._home = threading.Lock()
        self._home.acquire()

    def at(self, seconds, action):
        """Let something happen so many seconds from now; it must not wait."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), None, action))

    def start(self, name, action, delay=0.0):
        """Start a task; return it."""
        task = Task(self, name, action)
        self._tasks.add(task)
        self._wake_at(task, self.now + delay)
        return task

    def sleep(self, seconds):
        """Let the current task wait."""
        task = self.current
        self.check()
        self._wake_at(task, self.now + max(0.0, seconds))
        self._yield(task)

    def wake(self, task):
        """End the wait of a task early."""
        if not task.is_over:
            self._wake_at(task, self.now)

    def check(self):
        """End the current task when it was killed."""
        if self.current.is_killed:
            raise Killed

    def kill(self, task):
        """End a task where it waits; the current one ends at its next wait or call."""
        task.is_killed = True
        if task is not self.current:
            self.wake(task)

    def run(self, seconds):
        """
        Let time pass.

        Raises:
            AssertionError: A promise was broken.
            BaseException: What else a task or an event raised.
        """
        self._until = self.now + seconds
        self._go()
        if isinstance(self.failure, BrokenPromise):
            raise AssertionError(str(self.failure)) from self.failure  # noqa: TRY004 - it is no wrong type
        if self.failure is not None:
            raise self.failure
        self.now = self._until

    def run_until(self, condition, seconds=3600):
        """
        Let time pass, a second at a time, until a condition is true; return what it returned.

        Raises:
            AssertionError: It never was true within so many seconds of virtual time.
        """
        for _ in range(seconds):
            if found := condition():
                return found
            self.run(1)
        raise AssertionError(f"the condition was not true within {seconds} s")

    def close(self):
        """End every task and wait for its thread."""
        self.failure, self._is_closing = None, True
        self._events.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.is_killed = True
            self.wake(task)
        self._until = self.now
        self._go()
        for task in tasks:
            task.join()

    def fail(self, error):
        """RecordMembers what ends the run."""
        if not self._is_closing:
            self.failure = self.failure or error

    def leave(self):
        """Hand the baton on for good: the current task has ended."""
        self._tasks.discard(self.current)
        self._hand_over(self._next())

    def _go(self):
        successor = self._next()
        if successor is not None:
            successor.resume()
            self._home.acquire()

    def _wake_at(self, task, moment):
        task.due = next(self._numbers)
        heapq.heappush(self._events, (moment, task.due, task, None))

    def _yield(self, task):
        successor = self._next()
        if successor is not task:
            self._hand_over(successor)
            task.pause()
            self.current = task
        if task.is_killed:
            raise Killed

    def _hand_over(self, successor):
        self.switches += 1
        if successor is None:
            self.current = None
            self._home.release()
        else:
            successor.resume()

    def _next(self):
        """Let events happen up to the next task's turn; None when the run is over."""
        try:
            while self.failure is None and self._events and self._events[0][0] <= self._until:
                moment, number, task, action = heapq.heappop(self._events)
                if task is None:
                    self.now = moment
                    action()
                elif number == task.due and not task.is_over:
                    self.now = moment
                    self.current = task
                    return task
        except BaseException as error:  # noqa: BLE001 - an event's failure belongs to the test
            self.fail(error)
        return None


class VirtualClock(Clock):
    """The monotonic clock of one machine, which counts from its boot."""

    def __init__(self, scheduler):
        self._scheduler = scheduler
        self._booted = scheduler.now

    def read(self):
        return self._scheduler.now - self._booted

    def wait(self, seconds):
        self._scheduler.sleep(seconds)
