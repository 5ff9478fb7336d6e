"""Output of a program on a terminal, as its reader sees it: lines that have ended, and refreshes of progress bars."""

import codecs
import contextlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TextIO

from cdk_rehearsal.printing import make_printable, open_terminal

REFRESH_SECONDS = 1.0
"""Least time between two refreshes."""
PIPE_REFRESH_SECONDS = 10.0
"""Least time between two refreshes in a pipe or a file, where each is a line."""
MOST_LETTERS = 1 << 20
"""Most letters of a line; a longer one is shown in parts."""
MOST_ROWS = 64
"""Most lines above the cursor that a program may rewrite."""
_READ_BYTES = 1 << 16
_MOST_ESCAPE = 256
_CONTROL = re.compile(
    r"[\r\n\b]|\x1b\[(?P<number>[0-9]*)[0-?]*[ -/]*(?P<action>[@-~])"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]"
)
"""Controls of a terminal (ECMA-48, 5.4: control sequences; xterm's "ctlseqs": strings such as the title)."""
_BEGUN = re.compile(r"(?:\r+|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[ -/]*)?)\Z")
"""A control that may go on: `\\r` before `\\n` is the end of a line."""


@dataclass
class _Row:
    text: str = ""
    ended: str | None = None  # The text with which it was returned as a line; None before


class TerminalRows:
    r"""
    The rows of a terminal that a program may still rewrite.

    A text after `\r` replaces its row: bars are shorter than their predecessors only where they pad them. Bars below
    each other move the cursor up and down again (tqdm's `position`, rich); a row that was rewritten after its end is
    returned again, with its last text, when the cursor leaves the rows for good.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._above: deque[_Row] = deque(maxlen=MOST_ROWS)
        self._rows = [_Row()]
        self._row = self._column = 0
        self._is_returned = True
        self._latest = ""
        self.is_changed = False  # Whether a text was written since `take_refresh`
        self.is_rewritten = False  # Whether the cursor was moved since the last line

    def feed(self, data: bytes, *, is_last: bool = False) -> list[str]:
        """Read what a program wrote, and return the lines that have ended; at the end, also the last without an end."""
        text = self._rest + self._decoder.decode(data, is_last)
        begun = _BEGUN.search(text, max(0, len(text) - _MOST_ESCAPE))
        self._rest = begun[0] if begun and not is_last else ""
        text = text[: len(text) - len(self._rest)]
        lines: list[str] = []
        at = 0
        for control in _CONTROL.finditer(text):
            self._write(text[at : control.start()], lines)
            self._obey(control, lines)
            at = control.end()
        self._write(text[at:], lines)
        if is_last:
            if self._rows[-1].ended is None and not self._rows[-1].text.strip():
                self._rows.pop()
            self._end_rows(lines)
        return lines

    def take_refresh(self) -> str:
        """Return the row that was written last."""
        self.is_changed = False
        return self._latest

    def _write(self, text: str, lines: list[str]) -> None:
        if not text:
            return
        row = self._rows[self._row]
        if self._is_returned:
            row.text, self._column, self._is_returned = "", 0, False
        column = min(self._column, len(row.text))
        row.text = row.text[:column] + text + row.text[column + len(text) :]
        self._column = column + len(text)
        if row.text.strip():
            self._latest, self.is_changed = row.text, True
        if len(row.text) > MOST_LETTERS:
            self._end_rows(lines)

    def _obey(self, control: "re.Match[str]", lines: list[str]) -> None:
        if control[0] == "\n":
            self._end_row(lines)
            return
        count = int((control["number"] or "1")[:4])
        is_rewritten = True
        if control[0] == "\r":
            self._is_returned = True
        elif control[0] == "\b":
            self._column = max(0, self._column - 1)
        elif control["action"] == "A":
            self._move_up(count)
        elif control["action"] == "B":
            self._row = min(self._row + count, len(self._rows) - 1)
        elif control["action"] == "D":
            self._column = max(0, self._column - count)
        elif control["action"] == "G":
            self._is_returned = count == 1
            self._column = count - 1
        elif control["action"] == "K" and control["number"] == "2":
            self._is_returned = True
        elif control["action"] == "K" and control["number"] in ("", "0") and not self._is_returned:
            self._rows[self._row].text = self._rows[self._row].text[: self._column]
        else:
            is_rewritten = False
        self.is_rewritten |= is_rewritten

    def _move_up(self, count: int) -> None:
        while self._row < count and self._above:
            self._rows.insert(0, self._above.pop())
            self._row += 1
        self._row = max(0, self._row - count)

    def _end_row(self, lines: list[str]) -> None:
        if self._row + 1 == len(self._rows):
            self._end_rows(lines)
        else:
            self._row += 1
        self._is_returned = True

    def _end_rows(self, lines: list[str]) -> None:
        for row in self._rows:
            if row.text != row.ended and (row.ended is None or row.text.strip()):
                lines.append(row.text)
                row.ended = row.text
        self._above.extend(self._rows)
        self._rows, self._row, self._column = [_Row()], 0, 0
        self._latest, self.is_changed, self.is_rewritten, self._is_returned = "", False, False, True


def read_lines(command: Sequence[str]) -> Generator[str, None, None]:
    r"""
    Yield what a program writes to a terminal: lines that have ended, without their ends, and refreshes.

    A refresh ends with `\r`; it is the latest text of a line that has not ended, at most one a second. Close the
    generator to end the program.

    The Session Manager plugin asks for the size of its terminal and fails without one, as in CI
    (https://github.com/aws/amazon-ssm-agent/issues/354), so the program gets a terminal of its own, of the size of the
    caller's.
    """
    ours, theirs = pty.openpty()
    columns, rows = shutil.get_terminal_size()
    termios.tcsetwinsize(theirs, (rows, columns))  # In one of no columns a progress bar is empty.
    try:
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    finally:
        os.close(theirs)
    try:
        yield from _read_rows(ours)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        os.close(ours)
        process.wait()


def _read_rows(handle: int) -> Generator[str, None, None]:
    rows, shown_at, since = TerminalRows(), -REFRESH_SECONDS, 0.0
    arrived = select.poll()
    arrived.register(handle, select.POLLIN)
    while True:
        # A text that nothing has rewritten is mostly a part of a line whose rest arrives at once.
        due = max(shown_at + REFRESH_SECONDS, since if rows.is_rewritten else since + REFRESH_SECONDS)
        wait = max(0.0, due - time.monotonic()) if rows.is_changed else None
        if wait == 0.0 or not arrived.poll(None if wait is None else wait * 1000):
            yield f"{rows.take_refresh()}\r"
            shown_at = time.monotonic()
            continue
        block = _read(handle)
        was_changed = rows.is_changed
        lines = rows.feed(block, is_last=not block)
        yield from lines
        if not block:
            return
        if lines or not was_changed:
            since = time.monotonic()


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, _READ_BYTES)
    except OSError:  # EIO: the last process with the terminal has ended (pty(7)).
        return b""


class JobOutput:
    """The output of a job on a stream: a refresh rewrites its line on a terminal, and is a line elsewhere."""

    def __init__(self, stream: TextIO | None = None, read_clock: Callable[[], float] = time.monotonic) -> None:
        """Begin a line of a stream. Default: standard output."""
        self._stream = open_terminal(sys.stdout if stream is None else stream)
        self._read_clock = read_clock
        self._printed_at = -PIPE_REFRESH_SECONDS
        self._is_refreshed = False
        self.last_line = ""

    def print_line(self, line: str) -> None:
        """Print a line at once, in place of the refresh before it, with control characters made visible."""
        if self._is_refreshed:
            self._stream.write("\r\x1b[K")
            self._is_refreshed = False
        self.last_line = line
        print(make_printable(line), file=self._stream, flush=True)

    def print_refresh(self, text: str) -> None:
        """Show the latest text of a line that has not ended; in a pipe or a file at most one each 10 seconds."""
        if self._stream.isatty():
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{make_printable(text)[:width]}\x1b[K", end="", file=self._stream, flush=True)
            self._is_refreshed = True
        elif self._read_clock() - self._printed_at >= PIPE_REFRESH_SECONDS:
            self._printed_at = self._read_clock()
            self.print_line(text)

    def end_line(self) -> None:
        """End the line of a refresh, before something else is printed."""
        if self._is_refreshed:
            print(file=self._stream, flush=True)
            self._is_refreshed = False


def print_progress(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)
