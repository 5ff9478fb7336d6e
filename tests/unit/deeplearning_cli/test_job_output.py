r"""
The output of a job as it arrives: lines, and refreshes of progress bars.

The bars are those that tqdm 4.66, Keras 2 and 3 (`\b` and `\r`), pip 24 (rich) and wget write.
"""

import io
import os
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_cli.jobs import output
from deeplearning_cli.jobs.output import MOST_LETTERS, JobOutput, TerminalRows, read_lines

UP, CLEAR = "\x1b[A", "\x1b[2K"


def read(*blocks):
    """Return the lines of blocks of output, up to its end."""
    rows = TerminalRows()
    lines = [line for block in blocks for line in rows.feed(block if isinstance(block, bytes) else block.encode())]
    return lines + rows.feed(b"", is_last=True)


def refresh(*blocks):
    """Return the refresh after blocks of output."""
    rows = TerminalRows()
    for block in blocks:
        rows.feed(block.encode())
    return rows.take_refresh() if rows.is_changed else None


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\r\nc\r\r\n", ["a", "b", "c"]),
        ("a\n\n\nb", ["a", "", "", "b"]),
        ("no end", ["no end"]),
        ("", []),
        ("\r  5%|#   | 1/20\r100%|####| 20/20\nloss 0.5\n", ["100%|####| 20/20", "loss 0.5"]),
        ("50%\r", ["50%"]),
        ("\r 99%|###|\r          \rdone\n", ["done"]),
        ("10/60 [==>]\b\b\b\b\b\b\b\b\b\b\b\r60/60 [===]\n", ["60/60 [===]"]),
        ("10%\b\b\b20%\b\b\b30%\n", ["30%"]),
        (f"  ---- 1.0/4.0 MB\r{CLEAR}  ==== 4.0/4.0 MB\nInstalled\n", ["  ==== 4.0/4.0 MB", "Installed"]),
        ("long text\rshort\x1b[K\n", ["short"]),
        ("abc\x1b[2D-\x1b[K\n", ["a-"]),
        ("ab\x1b[1Gc\n", ["c"]),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07text\x1b(B\n", ["red text"]),
        ("naïve 数据\n", ["naïve 数据"]),
    ],
)
def test_lines_are_what_a_terminal_shows(text, lines):
    assert read(text) == lines
    assert read(*[bytes([byte]) for byte in text.encode()]) == lines


def test_bars_below_each_other_are_refreshed_in_their_rows():
    """tqdm, std.py, moveto: a bar of position 1 is a line end, the bar and a cursor up."""
    start = ["\router 0/2", "\n", "\rinner 0/9", UP]
    steps = ["\n", "\rinner 5/9", UP, "\router 1/2", "\n", "\rinner 9/9", UP, "\router 2/2"]
    assert read(*start) == ["outer 0/2", "inner 0/9"]
    assert refresh(*start, *steps[:3]) == "inner 5/9"
    assert read(*start, *steps, "\n", "\n", "end\n") == ["outer 0/2", "outer 2/2", "inner 9/9", "end"]


def test_a_bar_that_removes_itself_leaves_no_line():
    bars = ["\router 0/1", "\n", "\rinner 0/9", UP, "\n", "\r         \r", UP, "\router 1/1", "\n", "loss 0.5\n"]
    assert read(*bars) == ["outer 0/1", "outer 1/1", "loss 0.5"]
    assert read(*bars[:-1]) == ["outer 0/1", "outer 1/1"]
    assert read("\router 0/1", "\n", "\rinner 0/9", UP, "\r         ", "\n", "\n") == ["outer 0/1", "inner 0/9"]


def test_half_of_a_line_end_and_colours_are_no_progress_bar():
    rows = TerminalRows()
    rows.feed(b"\x1b[32ma line\x1b[0m\r")
    assert not rows.is_rewritten
    rows.feed(b"\nbar\r")
    rows.feed(b"bar")
    assert rows.is_rewritten


@given(
    st.lists(
        st.sampled_from(
            ["\r", "\n", "\b", "\r\n", UP, "\x1b[3A", "\x1b[B", CLEAR, "\x1b[K", "\x1b[31m", "ab", "é", "\x1b"]
        )
    ),
    st.lists(st.integers(0, 60)),
)
def test_where_a_block_ends_makes_no_difference(parts, cuts):
    data = "".join(parts).encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    assert read(*(data[start:end] for start, end in pairwise(places))) == read(data)


def test_a_broken_text_is_replaced():
    assert read(b"a\xffb\xc3") == ["a�b�"]


def test_a_program_that_never_ends_a_line_takes_no_more_memory():
    rows, lines = TerminalRows(), []
    for _ in range(5 * MOST_LETTERS // 50_000):
        lines += rows.feed(b"x" * 50_000)
    assert sum(map(len, lines)) >= 4 * MOST_LETTERS
    for _ in range(100_000):
        rows.feed(b"\r50%" + b"\n\x1b[A\x1b")
    rows.feed(b"line\n" * 1000)
    assert len(rows._rows) + len(rows._above) <= 2 * output.MOST_ROWS + 1


BAR = """
import sys
print("epoch 1", flush=True)
sys.stdout.write("\\r  5%|#   | 1/20")
sys.stdout.flush()
sys.stdin.readline()
print("\\r100%|####| 20/20\\nPassword: ", end="", flush=True)
sys.stdin.readline()
print("ok")
"""


def test_a_bar_and_a_text_without_an_end_are_shown_while_they_wait(monkeypatch):
    """The program goes on only after its refresh was shown: each line of the test releases it."""
    opened = []
    openpty = output.pty.openpty
    monkeypatch.setattr(output.pty, "openpty", lambda: opened.append(openpty()) or opened[0])
    monkeypatch.setattr(output, "REFRESH_SECONDS", 0.01)
    shown = []
    for line in read_lines([sys.executable, "-c", BAR]):
        shown.append(line)
        if line.strip() in ("5%|#   | 1/20", "Password:") and line.endswith("\r"):
            os.write(opened[0][0], b"\n")
    assert shown[0] == "epoch 1"
    assert shown[1] == "  5%|#   | 1/20\r"
    assert "Password: \r" in shown
    assert [line for line in shown if not line.endswith("\r")][-1] == "ok"


def test_the_terminal_of_the_program_has_the_size_of_the_callers(monkeypatch):
    monkeypatch.setenv("COLUMNS", "97")
    monkeypatch.setenv("LINES", "31")
    ask = "import os; print(*os.get_terminal_size(1))"
    assert list(read_lines([sys.executable, "-c", ask])) == ["97 31"]


def test_a_text_that_grows_all_the_time_is_shown_before_it_ends(monkeypatch):
    source, target = os.pipe()
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])

    class Dots:
        """A dot each 0.4 s: it is never quiet for as long as a refresh takes."""

        def register(self, *_):
            """Take a handle, as select.poll."""

        def poll(self, _):
            now[0] += 0.4
            os.close(target) if now[0] > 4 else os.write(target, b".")
            return True

    monkeypatch.setattr(output.select, "poll", Dots)
    shown = list(output._read_rows(source))
    os.close(source)
    assert shown == ["....\r", "........\r", ".........."]


def test_on_a_terminal_a_refresh_rewrites_its_line(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    shown = JobOutput()
    shown.print_line("epoch 1")
    shown.print_refresh(" 5%|" + "#" * 40)
    shown.print_refresh("10%|\x07")
    shown.print_line("done")
    shown.print_refresh("50%")
    shown.end_line()
    shown.end_line()
    assert terminal.getvalue() == ("epoch 1\n\r 5%|###############\x1b[K\r10%|\\x07\x1b[K\r\x1b[Kdone\n\r50%\x1b[K\n")


def test_in_a_pipe_a_refresh_is_a_line_at_most_each_10_seconds(capsys):
    now = [0.0]
    shown = JobOutput(read_clock=lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        shown.print_refresh(f"{second}/25")
    shown.print_line("25/25")
    shown.end_line()
    assert capsys.readouterr().out == "0/25\n10/25\n20/25\n25/25\n"
