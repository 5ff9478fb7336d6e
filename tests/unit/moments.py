"""Moments of a command: the lines that it reaches, at each of which a test interrupts it once."""

import contextlib
import signal
import sys
import threading
import time
from pathlib import Path

MOST_SECONDS = 60
"""Time after which `given_up` lets a command end that an interruption has not ended; decides no test that passes."""
HANDLING_SECONDS = 0.02
"""Time of another thread at its line, in which the main thread handles the signal."""


@contextlib.contextmanager
def reach_lines(modules, act):
    """Call `act(line)` once at each line of some modules that any thread reaches; a line is its function and number."""
    files = {module.__file__ for module in modules}
    reached = set()

    def trace(frame, event, _argument):
        code = frame.f_code
        if code.co_filename not in files:
            return None
        line = f"{code.co_qualname}:{frame.f_lineno}"
        if event == "line" and line not in reached:
            reached.add(line)
            act(line)
        return trace

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)


def list_lines(modules, command):
    """Return the lines that a command reaches, in order."""
    lines = []
    with reach_lines(modules, lines.append):
        command()
    return lines


def interrupt_at(wanted, modules, command, number=signal.SIGINT):
    """Run a command that a signal reaches at one line; return its result."""

    def act(line):
        if line == wanted:
            signal.raise_signal(number) if threading.current_thread() is threading.main_thread() else send(number)

    with reach_lines(modules, act):
        return command()


def send(number):
    """Send a signal to the main thread, and let it handle it while this thread stays where it is."""
    signal.pthread_kill(threading.main_thread().ident, number)
    time.sleep(HANDLING_SECONDS)


@contextlib.contextmanager
def given_up(file):
    """Create a file, for which commands wait that must not end by themselves, when the block takes too long."""
    watchdog = threading.Timer(MOST_SECONDS, file.touch)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
    assert not file.exists(), "the interruption ended nothing"


def find_running(text):
    """Return the ids of the processes with a text in their words."""
    found = []
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(text).encode() in words.read_bytes():
                found.append(int(words.parent.name))
    return found


def wait_for_end(text):
    """Wait until no process has a text in its words: a killed one that has another parent takes a moment to end."""
    give_up = time.monotonic() + MOST_SECONDS
    while left := find_running(text):
        assert time.monotonic() < give_up, f"processes are left: {left}"
        time.sleep(0.01)
