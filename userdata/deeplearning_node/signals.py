"""
Signals that end a program, where it must not end between two steps.

Python raises KeyboardInterrupt between any two instructions of the main thread: also after a process was started and
before its owner can end it, and in the code that ends it. The other signals end a program at once.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Interruption(KeyboardInterrupt):
    """Interruption by a signal."""

    def __init__(self, number: int) -> None:
        """Name the signal."""
        super().__init__(number)
        self.number = number


def interrupt(number: int, _frame: FrameType | None) -> None:
    """Raise Interruption; a handler of signals."""
    raise Interruption(number)


@dataclass
class StopRequest:
    """Request to stop, from the first signal that `take` gets as a handler; 0 for none."""

    number: int = 0

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Keep the number of the signal."""
        self.number = self.number or number

    @contextlib.contextmanager
    def interrupts(self) -> Iterator[None]:
        """Raise Interruption in the block, for a request from before and for signals."""
        with handle_stops(interrupt):
            if self.number:
                raise Interruption(self.number)
            yield


@contextlib.contextmanager
def handle_stops(handler: Any) -> Iterator[None]:
    """Handle the signals that end a program; their handlers from before are restored."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def hold_stops(on_stop: Callable[[], None] = lambda: None) -> Iterator[None]:
    """
    Hold back the signals that would end this process, and deliver the first of them at the end of the block.

    `on_stop` is called at each of them, between two instructions of the block. Default: nothing. A signal that is
    ignored or has a handler of its own keeps it, and in other threads than the main one, where Python delivers no
    signals, none is held back.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        held.append(number)
        on_stop()

    ending = (signal.SIG_DFL, signal.default_int_handler, interrupt)
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS if is_main}
    before = {number: handler for number, handler in before.items() if handler in ending}
    try:
        for number in before:
            signal.signal(number, hold)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])
