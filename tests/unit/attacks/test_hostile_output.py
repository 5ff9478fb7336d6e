"""Control characters of containers, nodes and names never reach the terminal."""

import io
import sys
from datetime import datetime, timezone

import pytest

from cdk_rehearsal.printing import make_printable, open_terminal, report_error, run_command
from cdk_rehearsal.run.progress import report_line, show_progress
from cdk_rehearsal.run.timeline import Timeline
from deeplearning_cli.jobs.listing import format_jobs
from deeplearning_cli.jobs.output import JobOutput

CONTROLS = (
    "\x1b]0;another title\x07",
    "\x1b[2J",
    "\x1b[8m",
    "\x9b2J",
    "\u202e",
    "\u2066",
    "\x08\x08",
    "\r",
    "\x7f",
    "\u200b",
    "\u2028",
)
STARTED = "2026-11-28T10:00:00+00:00"


class Terminal(io.StringIO):
    """Stream that says that a person reads it."""

    def isatty(self):
        return True


@pytest.fixture(params=CONTROLS, ids=ascii)
def hostile(request):
    return f"before{request.param}after"


def is_plain(text):
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


def describe_job(**changes):
    return {"run": "digits", "state": "failed", "members": 2, "started": STARTED, "last_line": "ended", **changes}


@pytest.mark.parametrize("field", ["run", "last_line"])
def test_list_of_jobs_shows_the_reason_of_a_failure_without_its_controls(hostile, field):
    listed = format_jobs([describe_job(**{field: hostile})], "sagemaker", datetime.now(timezone.utc))
    assert is_plain(listed)
    assert "before" in listed
    assert "after" in listed


def test_reason_of_a_failure_begins_no_row_of_its_own():
    rows = format_jobs(
        [describe_job(last_line="ended\nother  ec2  succeeded")], "sagemaker", datetime.now(timezone.utc)
    )
    assert len(rows.splitlines()) == 2


def test_output_of_a_job_is_printed_without_its_controls(hostile):
    terminal = Terminal()
    output = JobOutput(terminal)
    output.print_line(hostile)
    assert is_plain(terminal.getvalue())


def test_progress_of_a_rehearsal_is_plain_in_a_file_and_in_a_terminal(hostile, capsys):
    report_line(hostile)
    assert is_plain(capsys.readouterr().err)
    stream = io.StringIO()
    timeline = Timeline()
    with show_progress(timeline, stream, verbose=True):
        timeline.report("node", hostile)
    assert is_plain(stream.getvalue())
    terminal = Terminal()
    with show_progress(timeline, terminal, verbose=True):
        timeline.report("node", hostile)
    control = hostile.removeprefix("before").removesuffix("after")
    assert f"before{control}after" not in terminal.getvalue()
    assert make_printable(hostile)[:12] in terminal.getvalue()


def test_every_command_prints_plain_text_whatever_it_prints(hostile, capsys):
    def say():
        print(hostile)
        sys.stderr.write(hostile)
        return report_error(ValueError(hostile), as_json=True)

    assert run_command(say) == 2
    printed = capsys.readouterr()
    assert is_plain(printed.out)
    assert is_plain(printed.err)
    assert make_printable(hostile) in printed.out


def test_program_that_moves_the_cursor_opens_the_terminal(capsys):
    assert run_command(lambda: open_terminal(sys.stdout).write("\x1b[K")) == 3
    assert capsys.readouterr().out == "\x1b[K"


def test_letters_of_any_language_and_tables_stay():
    text = "épreuve\t試験 ✓ 1 … 2"
    assert make_printable(text) == text
