"""When a cluster stops by itself: what nodes and adjuster are told, and what is warned about."""

from typing import Any

import pytest
from aws_cdk import Duration

from deeplearning_cdk import Spending
from deeplearning_cdk.operations.spending import check_spending
from deeplearning_contract.names import NodeRole

HOUR = Duration.hours(1)


def _adjuster_variables(synthesis: Any) -> dict[str, Any]:
    function = synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")
    return dict(function["Properties"]["Environment"]["Variables"])


def test_the_adjuster_is_told_the_deadline_and_the_master_alone_the_idle_time(synthesize: Any) -> None:
    synthesis = synthesize(
        worker_instance_type="m5.large", spending=Spending(stop_when_idle=Duration.minutes(30), stop_after=HOUR)
    )
    assert _adjuster_variables(synthesis)["DEEPLEARNING_STOP_AFTER_SECONDS"] == "3600"
    assert synthesis.settings(NodeRole.MASTER).stop_when_idle_seconds == 1800
    assert synthesis.settings(NodeRole.WORKER).stop_when_idle_seconds == 0


def test_without_an_end_nobody_is_told_of_one(synthesize: Any) -> None:
    synthesis = synthesize(worker_instance_type="m5.large")
    assert "DEEPLEARNING_STOP_AFTER_SECONDS" not in _adjuster_variables(synthesis)
    assert synthesis.settings(NodeRole.MASTER).stop_when_idle_seconds == 0


@pytest.mark.parametrize(
    ("instance_type", "spending", "count"),
    [
        ("p5.48xlarge", None, 1),
        ("p5.48xlarge", Spending(monthly_budget_usd=9), 1),
        ("p5.48xlarge", Spending(stop_when_idle=HOUR), 0),
        ("p5.48xlarge", Spending(stop_after=HOUR), 0),
        ("p5.48xlarge", Spending(monthly_budget_usd=9, budget_stops=True), 0),
        ("m5.large", None, 0),
    ],
)
def test_accelerators_that_nothing_stops_are_warned_about(
    synthesize: Any, instance_type: str, spending: Spending | None, count: int
) -> None:
    warnings = synthesize(worker_instance_type=instance_type, spending=spending).warnings
    found = [text for text in warnings if "nothing stops this cluster" in text]
    assert len(found) == count
    assert all("-c stop_when_idle_minutes=60" in text and "spending=Spending(" in text for text in found)


def test_a_cluster_is_not_stopped_while_it_forms() -> None:
    short = Spending(stop_after=Duration.minutes(30))
    assert check_spending(short, Duration.minutes(29)) is short
    with pytest.raises(ValueError, match=r"stop_after must be more than setup_timeout \(55 minutes\), got 30 minutes"):
        check_spending(short, Duration.minutes(55))


@pytest.mark.parametrize("props", [{"stop_after": Duration.minutes(9)}, {"stop_when_idle": Duration.minutes(9)}])
def test_times_too_short_to_work_in_are_refused(props: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be whole seconds from 10 minutes to 365 days, got 9 minutes; leave"):
        Spending(**props)
