"""Progress of a rehearsal while it runs: live in a terminal, plain lines elsewhere."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from cdk_rehearsal.manifest import require_no_errors
from cdk_rehearsal.printing import make_printable, open_terminal
from cdk_rehearsal.run.first_process import keep_on_interrupt
from cdk_rehearsal.run.timeline import Event, Timeline

_LINES = "\n\t"
_Listeners = tuple[Callable[[Event], None], Callable[[str], None]]
_ROUTINE = re.compile(
    r"\S+ → adjuster in [\d.]+ s"
    r"|event TEST_NOTIFICATION"
    r"|\S+ CREATE_IN_PROGRESS: Resource creation Initiated"
    r"|(?!WARNING |ERROR ).*: done in 0\.\d s"
)
"""Routine: calls of the function and steps that went well at once, and lines that repeat another."""


def report_line(line: str) -> None:
    """Write a line of progress before the rehearsal begins, to standard error."""
    _write(sys.stderr, line)


def report_warnings(assembly: Path, patterns: Sequence[str]) -> None:
    """
    Write the warnings that an app attached to stacks, as the CDK CLI does before it deploys.

    Raises:
        AssemblyError: The app attached errors, too.
    """
    for warning in require_no_errors(assembly, patterns):
        report_line(f"warning of the app: {warning}")


def keep_progress(timeline: Timeline, folder: Path) -> None:
    """Let an interrupt write what happened until then, routine too, to `interrupted.txt` in the folder of reports."""
    keep_on_interrupt(folder / "interrupted.txt", lambda: map(_line, list(timeline.events)))


@contextmanager
def show_progress(timeline: Timeline, stream: TextIO | None = None, *, verbose: bool = False) -> Iterator[None]:
    """Show what happens until the block ends, on standard error by default; `verbose` shows routine, too."""
    stream = stream or sys.stderr
    with (_live if stream.isatty() else _plain)(stream) as (show, begin):

        def select(event: Event) -> None:
            if verbose or not _ROUTINE.fullmatch(event.text):
                show(event)

        with timeline.subscribe(select, begin):
            yield


@contextmanager
def _plain(stream: TextIO) -> Iterator[_Listeners]:
    yield lambda event: _write(stream, _line(event)), lambda phase: _write(stream, f"--- {phase}")


def _write(stream: TextIO, line: str) -> None:
    stream.write(make_printable(line, kept=_LINES) + "\n")
    stream.flush()


def _line(event: Event) -> str:
    return f"{event.at:7.1f}s  {event.lane:<12.19}  {event.text}"


@contextmanager
def _live(stream: TextIO) -> Iterator[_Listeners]:
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.markup import escape  # noqa: PLC0415

    console = Console(file=open_terminal(stream), highlight=False)
    with console.status("starting", spinner="dots") as status:
        yield (
            lambda event: console.print(
                f"[dim]{event.at:7.1f}s[/]  [cyan]{escape(f'{event.lane:<12.19}')}[/]  "
                f"{escape(make_printable(event.text, kept=_LINES))}"
            ),
            lambda phase: status.update(f"[bold]{escape(phase)}[/] (Ctrl-C ends the rehearsal)"),
        )
