"""Does the same to many things at once, with so many threads."""

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def run_crew(items: Iterable[T], action: Callable[[T], None], size: int) -> None:
    """
    Do an action to each item; the items are taken one by one, so there may be any number of them.

    Args:
        items: What there is to do.
        action: Called from several threads.
        size: How many threads.

    Raises:
        Exception: The first that an action raised, after what was begun has ended.
    """
    crew = _Crew(items, action)
    threads = [threading.Thread(target=crew.work, name=f"crew-{number}", daemon=True) for number in range(size)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        crew.stop.set()
    if crew.errors:
        raise crew.errors[0]


class _Crew:
    def __init__(self, items: Iterable[T], action: Callable[[T], None]) -> None:
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self._items = iter(items)
        self._action: Callable[..., None] = action
        self._lock = threading.Lock()

    def work(self) -> None:
        try:
            while not self.stop.is_set():
                with self._lock:
                    item = next(self._items, self)
                if item is self:
                    return
                self._action(item)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self.errors.append(error)
            self.stop.set()
