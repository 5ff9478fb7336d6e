"""Stops without a user: the settings of nodes and adjuster, and the warnings."""

import pytest
from aws_cdk import Duration

from deeplearning_cdk import Spending, TrainingCluster
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, warn

HOUR = Duration.hours(1)


def test_only_the_master_has_the_idle_time(synthesize):
    settings = [synthesize(**props).settings(role) for props in (EVERYTHING, {}) for role in NodeRole]
    assert [each.stop_when_idle_seconds for each in settings] == [1800, 0, 0, 0]


@pytest.mark.parametrize(
    ("instance_type", "spending", "count"),
    [
        ("p5.48xlarge", Spending(), 1),
        ("p5.48xlarge", Spending(monthly_budget_usd=9), 1),
        ("p5.48xlarge", Spending(stop_when_idle=HOUR), 0),
        ("p5.48xlarge", Spending(stop_after=HOUR), 0),
        ("p5.48xlarge", Spending(monthly_budget_usd=9, budget_stops=True), 0),
        ("m5.large", Spending(), 0),
    ],
)
def test_accelerators_that_nothing_stops_are_warned_about(make_stack, instance_type, spending, count):
    warnings = warn(make_stack(), {"workers.instance_type": instance_type, "spending": spending})
    found = [text for text in warnings if "nothing stops this cluster" in text]
    assert len(found) == count
    assert all("set spending.stop_when_idle, such as to one hour" in text for text in found)


def test_a_cluster_is_not_stopped_while_it_forms(make_stack):
    props = {"spending": Spending(stop_after=Duration.minutes(30))}
    message = r"^spending\.stop_after must be more than setup_timeout \({} minutes\), got 30 minutes; "
    for timeout, found in ((None, 55), (Duration.minutes(30), 30)):
        with pytest.raises(ValueError, match=message.format(found)):
            TrainingCluster(make_stack(), "Cluster", setup_timeout=timeout, **props)
    TrainingCluster(make_stack(), "Cluster", setup_timeout=Duration.minutes(29), **props)


@pytest.mark.parametrize("prop", ["stop_after", "stop_when_idle"])
def test_times_too_short_to_work_in_are_refused(prop):
    message = rf"^spending\.{prop} must be whole seconds from 10 minutes to 365 days, got 9 minutes; leave"
    with pytest.raises(ValueError, match=message):
        Spending(**{prop: Duration.minutes(9)})


def test_a_budget_that_stops_has_a_sum():
    with pytest.raises(ValueError, match=r"^spending\.monthly_budget_usd must be given with spending\.budget_stops"):
        Spending(budget_stops=True)
