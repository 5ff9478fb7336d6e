"""
Printing of a command: text that no terminal obeys, errors, and the endings by an interrupt or a closed pipe.

What containers, nodes and AWS send is printed with its control characters made visible. A sequence of controls clears
the screen, changes the window's title or hides text (ECMA-48, 5.4); a character of direction, such as U+202E, shows
words in another order (Unicode Standard Annex #9).
"""

import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

UNAVAILABLE = 2
"""The exit status of a command that could not be carried out, for an error that has none of its own."""
INTERRUPTED = 130
CLOSED_PIPE = 141
"""The exit statuses that shells give for SIGINT and SIGPIPE."""


def run_command(command: Callable[[], int]) -> int:
    """
    Run a command and return its exit status; 130 after Ctrl-C, 141 when the reader of its output ended, as `head` does.

    Nothing that it prints controls the terminal, except where it opens the terminal itself.

    Raises:
        BrokenPipeError: A pipe other than standard output is closed.
    """
    try:
        with print_plain_text():
            try:
                return command()
            finally:
                sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        if not is_output_closed():
            raise
        return CLOSED_PIPE


def is_output_closed() -> bool:
    """Return whether the reader of standard output has ended, as `head` does; Python then writes no more to it."""
    output = select.poll()
    output.register(sys.stdout, 0)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def report_error(error: Exception, *, as_json: bool = False, program: str = "deeplearning-cdk") -> int:
    """Report an error on standard error, with `--json` on standard output too, and return the exit status."""
    status: int = getattr(error, "exit_status", UNAVAILABLE)
    sys.stderr.write(f"{program}: {error}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": {"message": str(error), "exit_status": status}}) + "\n")
        sys.stdout.flush()
    return status


def make_printable(text: str, kept: str = "\t") -> str:
    r"""
    Return a text with every character that is not printable as its escape, such as `\x1b` or `\u202e`.

    Args:
        text: Text from outside.
        kept: Further characters that stay. Default: tabs; a line feed would begin a line that looks like one of ours.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in kept else _escape(letter) for letter in text)


@contextmanager
def print_plain_text() -> Iterator[None]:
    """Make everything printable that the program writes to standard output and standard error, until the block ends."""
    output, errors = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("TextIO", _PlainStream(output)), cast("TextIO", _PlainStream(errors))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = output, errors


def open_terminal(stream: TextIO) -> TextIO:
    """Return the stream that takes controls: for a program that moves the cursor, and makes foreign text printable."""
    return stream.terminal if isinstance(stream, _PlainStream) else stream


class _PlainStream:
    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        return self.terminal.write(make_printable(text, kept="\n\t"))

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
