"""Each expectation of a case holds or does not, and says what was found."""

from dataclasses import replace

import pytest

from deeplearning_rehearsal.cases.format.expectations import Seen, Sight, judge_seen
from deeplearning_rehearsal.cases.recovery import Recovery
from deeplearning_rehearsal.report.environment_report import EnvironmentReport

WENT_ON = Recovery(seconds=8.0, lost_commits=0, size_before=4, sizes_after=(3, 4))
SIGHT = Sight(
    stack="CREATE_COMPLETE",
    reason="3 of 4: no capacity in eu-west-1a",
    requested=4,
    formed=3,
    generation=2,
    launches=5,
    timeline=("boots", "event EC2_INSTANCE_LAUNCH (lost)"),
    accuracy=0.96,
    failure_seconds=17.5,
    recoveries=(WENT_ON,),
    replacements=("i-9",),
    is_elastic=True,
    changed_files={"i-1": ()},
    calls=40,
    call_bound=53,
    environment=EnvironmentReport("built", detail="Horovod 0.28.1; built here in 90 s"),
    status="cluster    FORMED\nbrings     environment failed: error:\n           no room",
    commands={"true": "", "false": "status 1: no"},
)


@pytest.mark.parametrize(
    ("held", "broken"),
    [
        (Seen(stack="CREATE_COMPLETE"), Seen(stack="ROLLBACK_COMPLETE")),
        (Seen(requested=4), Seen(requested=3)),
        (Seen(formed=3), Seen(formed=4)),
        (Seen(generation_at_least=2), Seen(generation_at_least=3)),
        (Seen(reason_contains=("no capacity",)), Seen(reason_contains=("quota",))),
        (Seen(timeline_contains=("LAUNCH (lost)",)), Seen(timeline_contains=("reported leaving",))),
        (Seen(accuracy_at_least=0.9), Seen(accuracy_at_least=0.97)),
        (Seen(within_seconds=60.0), Seen(within_seconds=17.0)),
        (Seen(recovery_seconds_at_most=15.0), Seen(recovery_seconds_at_most=7.9)),
        (Seen(launches_at_most=5), Seen(launches_at_most=4)),
        (Seen(environment="built"), Seen(environment="failed")),
        (Seen(environment_says=("built here",)), Seen(environment_says=("copied from",))),
        (Seen(status_says=("failed: error: no room",)), Seen(status_says=("no route",))),
        (Seen(commands=("true",)), Seen(commands=("false",))),
    ],
)
def test_an_expectation_holds_for_what_was_seen_and_for_nothing_else(held: Seen, broken: Seen) -> None:
    assert [finding.is_held for finding in judge_seen(held, SIGHT)] == [True]
    assert [finding.is_held for finding in judge_seen(broken, SIGHT)] == [False]


@pytest.mark.parametrize(
    ("seen", "changes"),
    [
        (Seen(accuracy_at_least=0.0), {"accuracy": None}),
        (Seen(within_seconds=60.0), {"failure_seconds": None}),
        (Seen(recovery_seconds_at_most=15.0), {"recoveries": ()}),
        (Seen(recovery_seconds_at_most=15.0), {"recoveries": (WENT_ON, replace(WENT_ON, seconds=None))}),
        (Seen(recovery_seconds_at_most=15.0), {"recoveries": (WENT_ON, replace(WENT_ON, seconds=99.0))}),
        (Seen(lost_commits_at_most=0), {"recoveries": (replace(WENT_ON, lost_commits=1),)}),
        (Seen(lost_commits_at_most=0), {"recoveries": (replace(WENT_ON, lost_commits=None),)}),
        (Seen(lost_commits_at_most=0), {"recoveries": ()}),
        (Seen(replacement_joins=True), {"replacements": ()}),
        (Seen(replacement_joins=True), {"recoveries": (replace(WENT_ON, sizes_after=(3,)),)}),
        (Seen(identical_files=True), {"changed_files": {"i-1": (), "i-2": ("etc/hosts",)}}),
        (Seen(identical_files=True), {"changed_files": {}}),
        (Seen(calls_within_bound=True), {"calls": 54}),
        (Seen(calls_within_bound=True), {"call_bound": None}),
        (Seen(environment="built"), {"environment": None}),
        (Seen(environment_says=("built here",)), {"environment": None}),
        (Seen(status_says=("FORMED",)), {"status": ""}),
        (Seen(commands=("true",)), {"commands": {}}),
    ],
)
def test_an_expectation_that_was_not_observed_does_not_hold(seen: Seen, changes: dict[str, object]) -> None:
    (good,) = judge_seen(seen, SIGHT)
    (bad,) = judge_seen(seen, replace(SIGHT, **changes))
    assert (good.is_held, bad.is_held) == (True, False)


def test_a_replacement_of_a_job_that_starts_later_needs_only_to_be_a_member() -> None:
    (finding,) = judge_seen(Seen(replacement_joins=True), replace(SIGHT, is_elastic=False, recoveries=()))
    assert (finding.is_held, finding.found) == (True, "i-9")


def test_changed_files_are_named_with_their_node() -> None:
    sight = replace(SIGHT, changed_files={"i-2": ("etc/hosts", "opt/deeplearning/workers")})
    (finding,) = judge_seen(Seen(identical_files=True), sight)
    assert finding.found == "i-2: etc/hosts, opt/deeplearning/workers"


def test_the_figures_are_those_of_the_worst_fault() -> None:
    sight = replace(SIGHT, recoveries=(WENT_ON, replace(WENT_ON, seconds=11.0, lost_commits=1)))
    assert (sight.recovery_seconds, sight.lost_commits) == (11.0, 1)


def test_every_key_of_seen_is_judged() -> None:
    """A key that nobody judges would hold whatever happens."""
    texts = (
        "reason_contains",
        "timeline_contains",
        "environment_says",
        "status_says",
        "job_reason_contains",
        "job_output_contains",
    )
    lists = dict.fromkeys((*texts, "data_complete", "denied", "commands"), ("x",))
    values = {"stack": "x", "job_goes_through": "x", **lists, "needs_failed": {"data:x": "full"}}
    flags = {"replacement_joins", "identical_files", "calls_within_bound", "job_leaves_model"}
    for key in Seen.__dataclass_fields__:
        value = values.get(key, True if key in flags else 1)
        assert len(judge_seen(Seen(**{key: value}), Sight())) == 1, key
