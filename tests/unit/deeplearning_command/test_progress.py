"""Progress of provisioning steps: lines in a log, one line that is rewritten on a terminal."""

import io
from types import SimpleNamespace

import pytest

from deeplearning_command.provision.progress import Progress, describe_progress
from deeplearning_node.provision_status import Step

MIB = 2**20


def fetching(done):
    return Step("running", "fetching", done * MIB, 100 * MIB, "bytes")


def show(reports, *, is_terminal):
    """Report (second, step) one after the other; return the text on the stream."""
    stream, clock = io.StringIO(), SimpleNamespace(read=lambda: clock.now, now=0.0)
    stream.isatty = lambda: is_terminal
    progress = Progress(clock, lambda name, step: f"{name} {step.state} {describe_progress(step)}", stream)
    for clock.now, step in reports:
        progress.report("data:set", step)
    progress.finish()
    return stream.getvalue()


REPORTS = [(0, fetching(1)), (0.5, fetching(2)), (2, fetching(3)), (12, fetching(4)), (12.1, Step("done", "there"))]


def test_a_log_gets_each_new_state_and_progress_every_10_seconds():
    assert show(REPORTS, is_terminal=False).splitlines() == [
        "data:set running 1% of 100.0 MiB",
        "data:set running 4% of 100.0 MiB",
        "data:set done ",
    ]


def test_a_terminal_has_one_line_of_progress_that_is_rewritten_once_a_second():
    assert show(REPORTS, is_terminal=True) == (
        "data:set running 1% of 100.0 MiB\n"
        "\r\033[Kdata:set running 3% of 100.0 MiB"
        "\r\033[Kdata:set running 4% of 100.0 MiB\n"
        "data:set done \n"
    )
    assert show(REPORTS[:3], is_terminal=True).endswith("3% of 100.0 MiB\n"), "an interrupted line is ended"


@pytest.mark.parametrize(("rate", "left"), [(MIB, "1 min 30 s"), (10 * MIB, "9 s"), (MIB / 100, "2 h 30 min")])
def test_the_rest_takes_as_long_as_at_the_rate_so_far(rate, left):
    step = Step("running", "fetching", 10 * MIB, 100 * MIB, "bytes", rate)
    assert describe_progress(step).endswith(f"/s, {left} left")
