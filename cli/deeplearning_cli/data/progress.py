"""Shows how far a preparation is: bars on a terminal, else a line for each tenth."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deeplearning_cli.data.download import Tell

TENTHS = 10


@contextmanager
def show_progress() -> Iterator[Tell]:
    """Return what is told (what, bytes done, bytes in all; 0 when not known) while the context lasts."""
    if not sys.stderr.isatty():
        yield _LineTeller()
        return
    try:
        from rich.console import Console  # noqa: PLC0415 - takes a tenth of a second, and only this needs it
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    except ImportError:
        yield _LineTeller()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what)
            progress.update(tasks[what], completed=done, total=total or None)

        yield tell


class _LineTeller:
    """Writes a line when another tenth is done, and none twice."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        tenth = TENTHS * done // total if total else 0
        if self._told.get(what, -1) < tenth:
            self._told[what] = tenth
            amount = f"{TENTHS * tenth} % of {total} bytes" if total else f"{done} bytes"
            sys.stderr.write(f"{what}: {amount}\n")
            sys.stderr.flush()
