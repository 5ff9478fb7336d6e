"""Each expectation of a case holds or does not, and says what was found."""

from dataclasses import replace

import pytest

from deeplearning_rehearsal.cases.format.expectations import CaseObservations, Expectations, check_expectations
from deeplearning_rehearsal.cases.recovery import Recovery
from deeplearning_rehearsal.report.environment_report import EnvironmentReport

WENT_ON = Recovery(seconds=8.0, lost_commits=0, size_before=4, sizes_after=(3, 4))
OBSERVED = CaseObservations(
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
        (Expectations(stack="CREATE_COMPLETE"), Expectations(stack="ROLLBACK_COMPLETE")),
        (Expectations(requested=4), Expectations(requested=3)),
        (Expectations(formed=3), Expectations(formed=4)),
        (Expectations(generation_at_least=2), Expectations(generation_at_least=3)),
        (Expectations(reason_contains=("no capacity",)), Expectations(reason_contains=("quota",))),
        (Expectations(timeline_contains=("LAUNCH (lost)",)), Expectations(timeline_contains=("reported leaving",))),
        (Expectations(accuracy_at_least=0.9), Expectations(accuracy_at_least=0.97)),
        (Expectations(within_seconds=60.0), Expectations(within_seconds=17.0)),
        (Expectations(recovery_seconds_at_most=15.0), Expectations(recovery_seconds_at_most=7.9)),
        (Expectations(launches_at_most=5), Expectations(launches_at_most=4)),
        (Expectations(environment="built"), Expectations(environment="failed")),
        (Expectations(environment_says=("built here",)), Expectations(environment_says=("copied from",))),
        (Expectations(status_says=("failed: error: no room",)), Expectations(status_says=("no route",))),
        (Expectations(commands=("true",)), Expectations(commands=("false",))),
    ],
)
def test_an_expectation_holds_for_what_was_seen_and_for_nothing_else(held: Expectations, broken: Expectations) -> None:
    assert [finding.is_held for finding in check_expectations(held, OBSERVED)] == [True]
    assert [finding.is_held for finding in check_expectations(broken, OBSERVED)] == [False]


@pytest.mark.parametrize(
    ("seen", "changes"),
    [
        (Expectations(accuracy_at_least=0.0), {"accuracy": None}),
        (Expectations(within_seconds=60.0), {"failure_seconds": None}),
        (Expectations(recovery_seconds_at_most=15.0), {"recoveries": ()}),
        (Expectations(recovery_seconds_at_most=15.0), {"recoveries": (WENT_ON, replace(WENT_ON, seconds=None))}),
        (Expectations(recovery_seconds_at_most=15.0), {"recoveries": (WENT_ON, replace(WENT_ON, seconds=99.0))}),
        (Expectations(lost_commits_at_most=0), {"recoveries": (replace(WENT_ON, lost_commits=1),)}),
        (Expectations(lost_commits_at_most=0), {"recoveries": (replace(WENT_ON, lost_commits=None),)}),
        (Expectations(lost_commits_at_most=0), {"recoveries": ()}),
        (Expectations(replacement_joins=True), {"replacements": ()}),
        (Expectations(replacement_joins=True), {"recoveries": (replace(WENT_ON, sizes_after=(3,)),)}),
        (Expectations(identical_files=True), {"changed_files": {"i-1": (), "i-2": ("etc/hosts",)}}),
        (Expectations(identical_files=True), {"changed_files": {}}),
        (Expectations(calls_within_bound=True), {"calls": 54}),
        (Expectations(calls_within_bound=True), {"call_bound": None}),
        (Expectations(environment="built"), {"environment": None}),
        (Expectations(environment_says=("built here",)), {"environment": None}),
        (Expectations(status_says=("FORMED",)), {"status": ""}),
        (Expectations(commands=("true",)), {"commands": {}}),
    ],
)
def test_an_expectation_that_was_not_observed_does_not_hold(seen: Expectations, changes: dict[str, object]) -> None:
    (good,) = check_expectations(seen, OBSERVED)
    (bad,) = check_expectations(seen, replace(OBSERVED, **changes))
    assert (good.is_held, bad.is_held) == (True, False)


def test_a_replacement_of_a_job_that_starts_later_needs_only_to_be_a_member() -> None:
    (finding,) = check_expectations(
        Expectations(replacement_joins=True), replace(OBSERVED, is_elastic=False, recoveries=())
    )
    assert (finding.is_held, finding.found) == (True, "i-9")


def test_changed_files_are_named_with_their_node() -> None:
    observations = replace(OBSERVED, changed_files={"i-2": ("etc/hosts", "opt/deeplearning/workers")})
    (finding,) = check_expectations(Expectations(identical_files=True), observations)
    assert finding.found == "i-2: etc/hosts, opt/deeplearning/workers"


def test_the_figures_are_those_of_the_worst_fault() -> None:
    observations = replace(OBSERVED, recoveries=(WENT_ON, replace(WENT_ON, seconds=11.0, lost_commits=1)))
    assert (observations.recovery_seconds, observations.lost_commits) == (11.0, 1)


def test_every_key_of_seen_is_judged() -> None:
    """A key that nobody judges would hold whatever happens."""
    texts = (
        "reason_contains",
        "timeline_contains",
        "environment_says",
        "status_says",
        "job_reason_contains",
        "job_output_contains",
        "submit_prints",
    )
    lists = dict.fromkeys((*texts, "data_complete", "denied", "commands"), ("x",))
    values = {"stack": "x", "job_goes_through": "x", **lists, "needs_failed": {"data:x": "full"}}
    flags = {"replacement_joins", "identical_files", "calls_within_bound", "job_leaves_model"}
    for key in Expectations.__dataclass_fields__:
        value = values.get(key, True if key in flags else 1)
        assert len(check_expectations(Expectations(**{key: value}), CaseObservations())) == 1, key
