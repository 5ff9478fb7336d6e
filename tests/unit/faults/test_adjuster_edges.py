"""The capacity adjuster's calls to AWS, each broken: the cluster ends up as if they had not been."""

import contextlib
import functools
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import boto3
import botocore.endpoint
import pytest
from botocore.exceptions import ClientError
from fault_proxy import RESET_AFTER, RESET_BEFORE, FaultProxy, refuse

from capacity_adjuster import handler
from capacity_adjuster.aws.state_table import StateTable
from capacity_adjuster.reconcile.reconciliation import Reconciliation
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG
from deeplearning_contract.settings import AdjusterSettings
from tests.unit.local_aws import ask_moto, create_state_table

START = datetime(2026, 11, 21, 10, 0, tzinfo=timezone.utc)
LACK = "We currently do not have sufficient p3dn.24xlarge capacity in the Availability Zone you requested (us-east-1a)."
CALLS = (
    "DescribeAutoScalingGroups", "DescribeScalingActivities", "GetItem", "PutItem", "SuspendProcesses",
    "SetDesiredCapacity", "ResumeProcesses", "SendMessage",
)  # fmt: skip
CLIENT_ATTEMPTS = 4
make_client = functools.cache(boto3.client)


class Time:
    """An invocation's time; it passes only by waiting."""

    def __init__(self, age=60.0, budget=120.0):
        self.time, self.end = START.timestamp() + age, START.timestamp() + age + budget

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds

    def remaining(self):
        return self.end - self.time

    def tick(self):
        """Begin the next invocation, a minute later."""
        self.time += 60
        self.end = self.time + 120


class Cloud:
    """Groups of one master and three workers, of which the last could not be launched."""

    def __init__(self, proxy, signals):
        self.proxy, self.signals = proxy, signals
        create_state_table(make_client("dynamodb"))
        make_client("ec2").create_launch_template(
            LaunchTemplateName="node", LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "t3.micro"}
        )
        for role, desired in (("master", 1), ("worker", 3)):
            self.create_group(role, desired)
        queue = make_client("sqs").create_queue(QueueName="master")["QueueUrl"]
        self.settings = AdjusterSettings("training", "state", queue, signals.url, 1, 10)
        handler._make_client("autoscaling").meta.events.register("after-call", fall_short, unique_id="fall-short")
        proxy.clear()

    @staticmethod
    def create_group(role, desired):
        tags = {CLUSTER_TAG: "training", ROLE_TAG: role}
        make_client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName=role,
            MinSize=0,
            MaxSize=desired,
            DesiredCapacity=desired,
            AvailabilityZones=["us-east-1a"],
            LaunchTemplate={"LaunchTemplateName": "node"},
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()],
        )

    def invoke(self, time):
        return Reconciliation(self.settings, handler.make_adapters(self.settings, time)).run()

    def converge(self, time, invocations=5):
        """Tick until a verdict stands; what a tick raises, Lambda would log."""
        raised = []
        for _ in range(invocations):
            try:
                outcome = self.invoke(time)
            except Exception as error:  # noqa: BLE001 - the next tick goes on
                raised.append(error)
                outcome = ""
            time.tick()
            if outcome.startswith("the verdict stands"):
                break
        return raised

    @property
    def state(self):
        return StateTable(make_client("dynamodb"), "state", "training").read_state()

    @property
    def workers(self):
        found = make_client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=["worker"])
        return found["AutoScalingGroups"][0]


def fall_short(model, parsed, **_):
    """Say what moto cannot: that one worker's launch failed."""
    for group in parsed.get("AutoScalingGroups", ()):
        group["CreatedTime"] = START
        if len(group["Instances"]) == 3:
            group["Instances"].pop()
    if model.name == "DescribeScalingActivities" and "Activities" in parsed:
        parsed["Activities"] = [activity("launch-1")]


def activity(name):
    return {
        "ActivityId": name,
        "AutoScalingGroupName": "worker",
        "Description": "Launching a new EC2 instance",
        "Cause": "At 2026 ...",
        "StartTime": START,
        "EndTime": START,
        "StatusCode": "Failed",
        "StatusMessage": LACK,
        "Details": '{"Availability Zone":"us-east-1a"}',
    }


@pytest.fixture(scope="module")
def standing_proxy():
    """One proxy for all tests here, because making its clients costs more than all calls of a test."""
    proxy = FaultProxy(ask_moto)
    boto3.setup_default_session()
    boto3.DEFAULT_SESSION.events.register("before-send", proxy.answer)
    with pytest.MonkeyPatch.context() as patch, proxy.serve():
        patch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda seconds: None))
        yield proxy
    make_client.cache_clear()
    handler._make_client.cache_clear()
    boto3.setup_default_session()


@pytest.fixture
def proxy(empty_moto, standing_proxy, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", standing_proxy.url)
    standing_proxy.clear()
    return standing_proxy


@pytest.fixture
def cloud(proxy, signals):
    return Cloud(proxy, signals)


def expect_one_shrink(cloud):
    cloud.proxy.clear()
    state, workers = cloud.state, cloud.workers
    assert (state.phase, state.generation, state.requested) == (Phase.LAUNCHED, 1, 4)
    assert len(state.expected) == 3
    assert (workers["DesiredCapacity"], workers["SuspendedProcesses"]) == (2, [])
    assert cloud.signals.bodies == []


ONCE, FOR_LONG = (1,), tuple(range(1, CLIENT_ATTEMPTS + 1))
BROKEN = {
    "throttled": (refuse("Throttling"), ONCE),
    "unavailable": (refuse("ServiceUnavailable", 503), FOR_LONG),
    "reset-before": (RESET_BEFORE, FOR_LONG),
    "reset-after": (RESET_AFTER, FOR_LONG),
}


@pytest.mark.fault(33, 39, 41)
@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("DescribeAutoScalingGroups", "throttled"),
        ("PutItem", "throttled"),
        ("SetDesiredCapacity", "reset-before"),
        *((operation, "unavailable") for operation in CALLS),
        *((operation, "reset-after") for operation in CALLS if operation[0] not in "DG"),
    ],
)
def test_a_broken_call_of_a_shrink_changes_nothing_in_the_end(cloud, operation, name):
    fault, on = BROKEN[name]
    cloud.proxy.inject(fault, operation, on)
    raised = cloud.converge(Time())
    assert len(raised) <= 1, "the client's own repetitions, or the next tick, make it good"
    assert cloud.proxy.count(operation) > max(on) or operation in {"SendMessage", "SetDesiredCapacity"}
    expect_one_shrink(cloud)


@pytest.mark.fault(42)
@pytest.mark.parametrize("operation", CALLS[:-1])
def test_a_denied_call_is_the_reason_with_its_name(cloud, operation):
    denial = f"User: adjuster is not authorized to perform: autoscaling:{operation}"
    cloud.proxy.inject(refuse("AccessDenied", 403, denial), operation)
    with pytest.raises(ClientError, match=operation):
        cloud.invoke(Time(age=30.0))
    assert cloud.signals.bodies == [], "a new role may be denied for a while"
    for age in range(90, 300, 60):
        with contextlib.suppress(ClientError):
            cloud.invoke(Time(age=float(age)))
    assert operation in cloud.signals.bodies[0]["Reason"]
    assert cloud.signals.bodies[0]["Status"] == "FAILURE"


@pytest.mark.fault(19, 42)
def test_a_denied_notification_costs_the_master_a_poll_and_nothing_else(cloud):
    cloud.proxy.inject(refuse("AccessDenied", 403), "SendMessage")
    raised = cloud.converge(Time(age=400.0))
    assert "SendMessage" in str(raised[0])
    expect_one_shrink(cloud)


@pytest.mark.fault(15)
def test_a_desired_capacity_that_auto_scaling_refuses_is_no_end(cloud):
    """The user has raised the group's minimum between the look and the call."""
    refusal = "Desired capacity:2 must be between the specified min size:3 and max size:3"
    cloud.proxy.inject(refuse("ValidationError", 400, refusal), "SetDesiredCapacity", ONCE)
    (raised,) = cloud.converge(Time())
    assert refusal in str(raised)
    expect_one_shrink(cloud)


@pytest.mark.fault(34)
@pytest.mark.parametrize("budget", [0.5, 19])
def test_an_invocation_without_time_decides_nothing(cloud, budget):
    assert cloud.invoke(Time(budget=budget)) == "no time is left in this invocation"
    assert cloud.state is None
    assert {"SuspendProcesses", "SetDesiredCapacity", "SendMessage"}.isdisjoint(cloud.proxy.calls)
    cloud.converge(Time(age=120))
    expect_one_shrink(cloud)


@pytest.mark.fault(34)
@pytest.mark.parametrize("budget", [20, 30, 40, 50])
def test_an_invocation_whose_time_runs_out_within_a_shrink_leaves_nothing_suspended(cloud, budget):
    cloud.invoke(Time(budget=budget))
    assert cloud.workers["SuspendedProcesses"] == []
    cloud.converge(Time(age=180))
    expect_one_shrink(cloud)


def test_the_adjusters_waits_for_one_call_fit_into_an_invocation():
    config = handler._CONFIG
    longest = config.retries["total_max_attempts"] * (config.connect_timeout + config.read_timeout)
    assert config.retries["total_max_attempts"] == CLIENT_ATTEMPTS
    assert timedelta(seconds=longest) < timedelta(minutes=2), "the Lambda's own time-out"
