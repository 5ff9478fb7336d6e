"""Each assert of a case is a finding: its text, whether it holds, and the values that were compared."""

import math

import pytest

from deeplearning_rehearsal.cases.findings import Finding, Findings, record_asserts
from deeplearning_rehearsal.cases.outcome import Outcome
from deeplearning_rehearsal.cases.recovery import Recovery

WENT_ON = Recovery(seconds=8.0, lost_commits=0, size_before=4, sizes_after=(3, 4))
NEVER = Recovery(seconds=None, lost_commits=None, size_before=4, sizes_after=())


def _story(run, seen):
    assert seen.formed >= 3
    assert "no room" in seen.reason
    assert seen.replacements
    assert not seen.denials
    if seen.formed == 2:
        for name in seen.changed_files:
            assert name == run.expected


def _judge(seen):
    class Run(Findings):
        expected = "i-1"

    run, (recorded, count) = Run(), record_asserts(_story)
    assert count == 5
    recorded(run, seen)
    return run.recorded


def test_asserts_that_hold_are_findings():
    assert _judge(Outcome(formed=3, reason="no room", replacements=("i-9",))) == [
        Finding("seen.formed >= 3", is_held=True, found="3"),
        Finding("'no room' in seen.reason", is_held=True, found="'no room'"),
        Finding("seen.replacements", is_held=True, found="('i-9',)"),
        Finding("not seen.denials", is_held=True, found="{}"),
    ]


def test_asserts_that_fail_are_findings_and_the_next_ones_are_judged():
    found = _judge(Outcome(formed=2, reason="no route", denials={"s3:Get": "no"}, changed_files={"i-1": (), "i-2": ()}))
    assert [finding.is_held for finding in found] == [False, False, False, False, True, False]
    assert found[1].found == "'no route'"
    assert found[5] == Finding("name == run.expected", is_held=False, found="'i-2', 'i-1'")


def test_a_long_value_is_cut():
    findings = Findings()
    findings.record("x", "", "y" * 1000)
    assert len(findings.recorded[0].found) < 450


def test_a_traceback_names_the_line_of_the_case():
    def story(run):
        assert run.missing

    line = story.__code__.co_firstlineno
    with pytest.raises(AttributeError) as raised:
        record_asserts(story)[0](Findings())
    assert [(entry.path.name, entry.lineno + 1) for entry in raised.traceback][-1] == ("test_findings.py", line + 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("recoveries", "seconds", "lost", "has_regained"),
    [
        ((WENT_ON,), 8.0, 0, True),
        ((WENT_ON, Recovery(11.0, 1, 4, (3,))), 11.0, 1, True),
        ((WENT_ON, NEVER), math.inf, math.inf, True),
        ((NEVER,), math.inf, math.inf, False),
        ((), math.inf, math.inf, False),
    ],
)
def test_the_figures_are_those_of_the_worst_fault_and_what_never_came_holds_no_bound(
    recoveries, seconds, lost, *, has_regained
):
    seen = Outcome(recoveries=recoveries)
    assert (seen.recovery_seconds, seen.lost_commits, seen.has_regained_size) == (seconds, lost, has_regained)


def test_nothing_was_seen_of_what_did_not_happen():
    seen = Outcome()
    assert seen.failure_seconds == math.inf
    assert (seen.accuracy, seen.environment.state, seen.says("x"), seen.prints("x")) == (0.0, "absent", "", "")
    assert not seen.goes_through("Training")


def test_lines_are_found_by_a_text_and_statuses_in_their_order():
    seen = Outcome(
        timeline=("boots", "event (lost)"),
        job_output="one\ntwo words\n",
        job_transitions=("Starting", "Training", "Interrupted", "Starting", "Completed"),
    )
    assert (seen.says("lost"), seen.prints("two")) == ("event (lost)", "two words")
    assert seen.goes_through("Training", "Starting", "Completed")
    assert not seen.goes_through("Training", "Starting", "Training")
