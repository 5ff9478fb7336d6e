"""Progress of a rehearsal: the timeline, as plain lines or in a terminal."""

import io
import re
import subprocess
import sys

import pytest

from cdk_rehearsal.run.progress import show_progress
from cdk_rehearsal.run.timeline import Timeline


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def _timeline(*ticks):
    clock = iter(ticks)
    return Timeline(clock=lambda: next(clock))


def _texts(happenings):
    return [event.text for event in happenings]


def test_plain_progress_is_a_line_for_each_event_and_phase():
    timeline, stream = _timeline(100.0, 101.5, 102.0, 103.0), io.StringIO()
    with show_progress(timeline, stream), timeline.phase("form"):
        timeline.report("worker 6", "reported [joined]")
    assert stream.getvalue() == "--- form\n    2.0s  worker 6      reported [joined]\n"


def test_a_terminal_shows_phase_and_events_and_gets_its_cursor_back(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    timeline, stream = _timeline(100.0, 101.5, 102.0, 103.0), Terminal()
    with show_progress(timeline, stream), timeline.phase("form"):
        timeline.report("worker 6", "reported [bold]joined")
    shown = stream.getvalue()
    assert "2.0s" in shown
    assert "reported [bold]joined" in shown
    assert "Ctrl-C ends the rehearsal" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


@pytest.mark.parametrize(("no_color", "has_color"), [("", True), ("1", False)])
def test_a_terminal_has_no_colour_where_no_color_is_set(monkeypatch, no_color, *, has_color):
    """https://no-color.org: any value that is not empty."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    timeline, terminal = Timeline(), Terminal()
    with show_progress(timeline, terminal):
        timeline.report("stack", "CREATE_COMPLETE")
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.getvalue())) == has_color


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_nothing_is_shown_after_the_end(stream):
    timeline = _timeline(0.0, 1.0, 2.0, 3.0)
    with show_progress(timeline, stream):
        pass
    shown = stream.getvalue()
    timeline.report("stack", "late")
    with timeline.phase("later"):
        assert stream.getvalue() == shown
    assert _texts(timeline.events) == ["late"]


ROUTINE = (
    "cloudformation → adjuster in 0.4 s",
    "events → adjuster in 10.3 s",
    "event TEST_NOTIFICATION",
    "ClusterCoordinationFormation623FBE21 CREATE_IN_PROGRESS: Resource creation Initiated",
    "install packages: done in 0.0 s",
    "mount the file system: done in 0.1 s",
)
TELLING = (
    "sns → adjuster: KMSAccessDeniedException: Lambda was unable to decrypt the environment variables",
    "sns → adjuster: refused: its policy does not admit sns.amazonaws.com",
    "event EC2_INSTANCE_LAUNCH",
    "event EC2_INSTANCE_LAUNCH (lost)",
    "ClusterNodesMasterGroup841CD819 CREATE_IN_PROGRESS",
    "ClusterNodesMasterGroup841CD819 CREATE_COMPLETE",
    "deeplearning-cluster CREATE_IN_PROGRESS: User Initiated",
    "install packages: done in 42.7 s",
    "WARNING measure the network: done in 0.0 s",
    "reported joined",
)


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_routine_is_left_to_the_report_and_shown_when_asked_for(stream):
    timeline = Timeline(clock=lambda: 0.0)
    with show_progress(timeline, stream):
        for text in (*ROUTINE, *TELLING):
            timeline.report("adjuster", text)
    shown = " ".join(stream.getvalue().split())  # a terminal wraps
    assert [text for text in (*ROUTINE, *TELLING) if text in shown] == [*TELLING]
    assert _texts(timeline.events) == [*ROUTINE, *TELLING]

    everything = io.StringIO()
    with show_progress(timeline, everything, verbose=True):
        for text in ROUTINE:
            timeline.report("adjuster", text)
    assert len(everything.getvalue().splitlines()) == len(ROUTINE)


def test_timeline_measures_a_phase_that_ends_with_an_error():
    timeline = _timeline(0.0, 1.0, 4.0)
    with pytest.raises(RuntimeError), timeline.phase("train"):
        raise RuntimeError
    assert [(span.name, span.start, span.seconds) for span in timeline.spans] == [("train", 1.0, 3.0)]


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from cdk_rehearsal.run.progress import keep_progress
from cdk_rehearsal.run.timeline import Timeline
timeline = Timeline(clock=lambda: 5.0)
keep_progress(timeline, Path(sys.argv[1]))
if sys.argv[2:]:
    Path(sys.argv[1]).touch()
timeline.report("stack", "CREATE_IN_PROGRESS")
timeline.report("adjuster", "event TEST_NOTIFICATION")
os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("is_writable", [True, False])
def test_an_interrupt_keeps_what_happened_until_then_where_it_can(tmp_path, *, is_writable):
    out = tmp_path / "out"
    command = [sys.executable, "-c", INTERRUPTED, str(out), *([] if is_writable else ["a file takes the place"])]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    *before, last = ended.stderr.splitlines()
    assert last == "interrupted; nothing is left behind"
    if is_writable:
        kept = out / "interrupted.txt"
        assert before == ["", f"what happened until now is in {kept}"]
        assert kept.read_text() == (
            "    0.0s  stack         CREATE_IN_PROGRESS\n    0.0s  adjuster      event TEST_NOTIFICATION\n"
        )
