"""Terminal output of the commands: refusals, lines and tables."""

import os
import select
import sys
from collections.abc import Callable, Sequence


class RefusedError(Exception):
    """Refusal of a command; the message has cause and remedy for the user, and only `main` prints it."""


def print_line(line: str) -> None:
    """Print a line at once, also into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def is_output_closed() -> bool:
    """Return whether the reader of standard output has ended, as `head` does; Python then writes no more to it."""
    output = select.poll()
    output.register(sys.stdout, 0)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def on_change(report: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that reports a text unless it equals the previous one."""
    reported: list[str] = []

    def report_change(text: str) -> None:
        if reported != [text]:
            reported[:] = [text]
            report(text)

    return report_change


def align(rows: Sequence[Sequence[str]]) -> str:
    """Return one line a row, with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def draw_table(rows: Sequence[Sequence[str]], total: str) -> str:
    """Return the aligned rows and, after an empty line, the total."""
    return f"{align(rows)}\n{total}\n"
