"""The capacity adjuster's calls to AWS, each broken: the cluster ends up as if they had not been."""

import contextlib
import functools
import json
import re
import urllib.parse
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import boto3
import botocore.endpoint
import documents
import pytest
from botocore.exceptions import ClientError
from fault_proxy import RESET_AFTER, RESET_BEFORE, Fault, FaultProxy, refuse
from hypothesis import given, settings
from hypothesis import strategies as st

from capacity_adjuster import handler
from capacity_adjuster.aws.auto_scaling_groups import AutoScalingGroups
from capacity_adjuster.aws.state_table import StateTable
from capacity_adjuster.events.notifications import describe_event, is_test
from capacity_adjuster.reconcile.reconciliation import Reconciliation
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG
from deeplearning_contract.settings import AdjusterSettings
from tests.unit.local_aws import Answer, ask_moto, create_state_table

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
            if outcome == "the verdict stands":
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


# --- Pages ------------------------------------------------------------------------------------------


def serve_pages(kind, wrap, entries, size):
    """Return a fault that serves entries in pages, as Auto Scaling does."""

    def respond(call, _answer):
        sent = urllib.parse.parse_qs(call.body.decode())
        first = int(sent.get("NextToken", ["0"])[0])
        token = f"<NextToken>{first + size}</NextToken>" if first + size < len(entries) else ""
        members = "".join(f"<member>{entry}</member>" for entry in entries[first : first + size])
        result = f"<{kind}Result><{wrap}>{members}</{wrap}>{token}</{kind}Result>"
        return Answer(200, (("Content-Type", "text/xml"),), f"<{kind}Response>{result}</{kind}Response>".encode())

    return Fault(respond)


@pytest.fixture
def groups(proxy):
    return AutoScalingGroups(make_client("autoscaling"), "training")


@pytest.mark.fault(38)
@pytest.mark.defect("D17")
def test_2500_activities_are_read_though_pages_are_refused(groups, proxy):
    entries = [
        f"<ActivityId>a-{number}</ActivityId><AutoScalingGroupName>w</AutoScalingGroupName><Cause>c</Cause>"
        f"<StartTime>2026-11-21T10:00:00Z</StartTime><StatusCode>{'Failed' if number == 2499 else 'Successful'}"
        "</StatusCode><Description>Launching a new EC2 instance: i-1</Description>"
        for number in range(2500)
    ]
    proxy.inject(refuse("Throttling"), "DescribeScalingActivities", on=(13, 14))
    proxy.inject(serve_pages("DescribeScalingActivities", "Activities", entries, 100), "DescribeScalingActivities")
    found = groups.read_activities("w")
    assert [entry.activity_id for entry in found] == [f"a-{number}" for number in range(2500)]
    assert found[-1].is_failed_launch
    assert proxy.count("DescribeScalingActivities") == 25 + 2


@pytest.mark.fault(38)
def test_2500_instances_and_groups_on_every_page_are_read(groups, proxy):
    instances = "".join(
        f"<member><InstanceId>i-{number:08x}</InstanceId><LifecycleState>InService</LifecycleState>"
        "<HealthStatus>Healthy</HealthStatus><ProtectedFromScaleIn>false</ProtectedFromScaleIn>"
        "<AvailabilityZone>us-east-1a</AvailabilityZone></member>"
        for number in range(2500)
    )
    tags = "".join(
        f"<member><Key>{key}</Key><Value>{value}</Value></member>"
        for key, value in ((CLUSTER_TAG, "training"), (ROLE_TAG, "worker"))
    )
    entries = [
        f"<AutoScalingGroupName>g{number}</AutoScalingGroupName><MinSize>0</MinSize><MaxSize>2500</MaxSize>"
        f"<DesiredCapacity>2500</DesiredCapacity><CreatedTime>2026-11-21T10:00:00Z</CreatedTime>"
        f"<Instances>{instances if number == 120 else ''}</Instances><Tags>{tags if number == 120 else ''}</Tags>"
        for number in range(121)
    ]
    proxy.inject(
        serve_pages("DescribeAutoScalingGroups", "AutoScalingGroups", entries, 50), "DescribeAutoScalingGroups"
    )
    (group,) = groups.find()
    assert (group.name, len(group.launched)) == ("g120", 2500)
    assert proxy.count("DescribeAutoScalingGroups") == 3


# --- Events -----------------------------------------------------------------------------------------

messages = documents.json_values.map(json.dumps) | st.text(max_size=50)
records = st.fixed_dictionaries({"Sns": st.fixed_dictionaries({"Message": messages}) | documents.json_values})
events = documents.json_values | st.fixed_dictionaries(
    {"Records": st.lists(records | documents.json_values, max_size=4)}
)


@pytest.mark.fault(21, 22)
@pytest.mark.defect("D11")
@settings(max_examples=60, deadline=None)
@given(events)
def test_any_event_at_all_is_described_in_a_line_and_none_is_taken_for_a_test(event):
    described = describe_event(event)
    assert len(described) < 3000
    assert not re.search(r"[\n\r]", described)
    assert not is_test(event)


@pytest.mark.fault(22)
@pytest.mark.parametrize("depth", [100, 900, 5000, 100_000])
def test_an_event_nested_without_end_ends_nothing(depth):
    for text in (
        '{"Event":' + "[" * depth + "]" * depth + "}",
        "[" * depth,
        '{"StatusMessage":' * depth + "1" + "}" * depth,
    ):
        assert describe_event({"Records": [{"Sns": {"Message": text}}]})
        assert not is_test({"Records": [{"Sns": {"Message": text}}]})


def test_the_adjusters_waits_for_one_call_fit_into_an_invocation():
    config = handler._CONFIG
    longest = config.retries["total_max_attempts"] * (config.connect_timeout + config.read_timeout)
    assert config.retries["total_max_attempts"] == CLIENT_ATTEMPTS
    assert timedelta(seconds=longest) < timedelta(minutes=2), "the Lambda's own time-out"
