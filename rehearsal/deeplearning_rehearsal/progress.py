"""Shows a rehearsal while it runs: live in a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from deeplearning_rehearsal.timeline import Happening, Timeline


def tell(line: str) -> None:
    """Write a line about what is done before the rehearsal begins, to standard error."""
    _write(sys.stderr, line)


@contextmanager
def show_progress(timeline: Timeline, stream: TextIO | None = None) -> Iterator[None]:
    """
    Show what happens until the block ends.

    Args:
        timeline: Whose happenings are shown.
        stream: Where to. Default: standard error.
    """
    stream = stream or sys.stderr
    with _live(timeline, stream) if stream.isatty() else _plain(timeline, stream):
        yield


@contextmanager
def _plain(timeline: Timeline, stream: TextIO) -> Iterator[None]:
    with timeline.subscribe(
        lambda happening: _write(stream, _line(happening)),
        lambda phase: _write(stream, f"--- {phase}"),
    ):
        yield


def _write(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()


def _line(happening: Happening) -> str:
    return f"{happening.at:7.1f}s  {happening.lane:<12.19}  {happening.text}"


@contextmanager
def _live(timeline: Timeline, stream: TextIO) -> Iterator[None]:
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.markup import escape  # noqa: PLC0415

    console = Console(file=stream, highlight=False)
    with (
        console.status("starting", spinner="dots") as status,
        timeline.subscribe(
            lambda happening: console.print(
                f"[dim]{happening.at:7.1f}s[/]  [cyan]{escape(f'{happening.lane:<12.19}')}[/]  {escape(happening.text)}"
            ),
            lambda phase: status.update(f"[bold]{escape(phase)}[/] (Ctrl-C ends the rehearsal)"),
        ),
    ):
        yield
