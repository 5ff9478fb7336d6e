"""The adjuster against an in-process AWS: real calls, real records, a real signal."""

import functools
import json
import logging
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto.moto_api._internal.models import moto_api_backend

from capacity_adjuster import handler
from capacity_adjuster.aws.auto_scaling_groups import AutoScalingGroups
from capacity_adjuster.aws.state_table import StateTable
from capacity_adjuster.events.stack_request import answer_stack
from capacity_adjuster.policy.breaker import Breaker
from capacity_adjuster.policy.requested_capacity import CapacityRequest, GroupTarget, RequestedCapacity
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.policy.stop_policy import StopRecord
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from capacity_adjuster.reconcile.observer import Observer
from capacity_adjuster.reconcile.reconciliation import Reconciliation
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.document import ContractError
from deeplearning_contract.metrics import CAPACITY_ASKED, CAPACITY_LAUNCHED, FORMATION_PENDING_SECONDS, LAUNCH_FAILURES
from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG, NodeRole
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_contract.web import send_signal
from tests.unit.local_aws import create_state_table, empty_aws, hear_events

START = datetime(2026, 11, 21, 10, 0, tzinfo=timezone.utc)
LACK = "We currently do not have sufficient p3dn.24xlarge capacity in the Availability Zone you requested (us-east-1a)."
MUTATING = frozenset({"PutItem", "SendMessage", "SetDesiredCapacity", "SuspendProcesses", "ResumeProcesses"})

# Making a client costs more than all the calls of a test; the server's address is the same for all of them.
make_client = functools.cache(boto3.client)


class Context:
    """Lambda's context object, as far as it is used."""

    def get_remaining_time_in_millis(self):
        return 60_000


class SteppedClock:
    """Time that passes only when somebody waits."""

    def __init__(self, age=60.0):
        self.time = START.timestamp() + age

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds

    def remaining(self):
        return 60.0


class Cloud:
    """A cluster's groups, table and queue in moto, and the stack's signal server."""

    def __init__(self, settings, signals):
        self.signals = signals
        self.scaling = make_client("autoscaling")
        self.dynamodb = make_client("dynamodb")
        self.sqs = make_client("sqs")
        create_state_table(self.dynamodb)
        make_client("ec2").create_launch_template(
            LaunchTemplateName="node", LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "t3.micro"}
        )
        self.settings = replace(
            settings,
            master_queue_url=self.sqs.create_queue(QueueName="master")["QueueUrl"],
            signal_url=signals.url,
            worker_min_capacity=1,
        )
        self.is_short = False
        self.lost = 0
        self.calls = []
        self.adapters(SteppedClock())  # The adjuster's clients outlive a test; what watches them must not.

    def create_group(self, role, desired, *, cluster=None, name=None):
        tags = {CLUSTER_TAG: cluster or self.settings.cluster, ROLE_TAG: role}
        self.scaling.create_auto_scaling_group(
            # D14: a name that says the contrary of the tag.
            AutoScalingGroupName=name or f"{self.settings.cluster}-master-{role}",
            MinSize=0,
            MaxSize=desired,
            DesiredCapacity=desired,
            AvailabilityZones=["us-east-1a"],
            LaunchTemplate={"LaunchTemplateName": "node"},
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()],
        )

    def create_groups(self, workers=3):
        self.create_group("master", 1)
        self.create_group("worker", workers)

    def adapters(self, clock, denied=None):
        """Return adapters whose clients are watched, and denied a call when told."""

        def refuse(model, **_):
            if model.name == denied:
                text = f"User: adjuster is not authorized to perform: {model.name}"
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": text}}, model.name)

        for service in ("autoscaling", "dynamodb", "events", "sqs"):
            events = handler._make_client(service).meta.events
            for moment, watch in (("before-call", refuse), ("after-call", self.answer)):
                events.unregister(moment, unique_id=moment)
                events.register(moment, watch, unique_id=moment)
        self.calls.clear()
        return handler.make_adapters(self.settings, clock)

    def answer(self, model, parsed, **_):
        """Answer what moto cannot: that one worker's launch failed, or that workers were lost."""
        if model.name == "DescribeAutoScalingGroups":
            for group in parsed["AutoScalingGroups"]:
                group["CreatedTime"] = START
                if self.is_short and len(group["Instances"]) == 3:
                    group["Instances"].pop()
        if model.name == "DescribeScalingActivities" and self.is_short:
            parsed["Activities"] = [activity("launch-1", "Failed", StatusMessage=LACK)]
        if model.name == "DescribeScalingActivities" and self.lost:
            parsed["Activities"] = [lose(number) for number in range(self.lost)]
        if model.name in MUTATING:
            self.calls.append(model.name)

    def run(self, clock=None, **options):
        clock = clock or SteppedClock()
        return Reconciliation(self.settings, self.adapters(clock, **options)).run()

    def request(self, kind, workers, **more):
        """Let CloudFormation ask, and return what it was answered."""
        event = {
            "RequestType": kind,
            "RequestId": f"request-of-{kind}",
            "StackId": "stack",
            "LogicalResourceId": "RequestedCapacity",
            "ResponseURL": self.signals.url,
            "ResourceProperties": {"Master": "1", "Workers": str(workers), "Candidate": "0"},
            **more,
        }
        adapters = self.adapters(SteppedClock())
        answer_stack(
            event,
            adapters=adapters,
            capacity_change=CapacityChange(adapters, Observer(self.settings, adapters)),
            send=send_signal,
        )
        return self.signals.bodies[-1]

    def group(self, role):
        found = self.scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
        return next(group for group in found if group["AutoScalingGroupName"].endswith(f"-master-{role}"))

    def sizes(self):
        """Return the desired capacity of the master's and the workers' group."""
        return tuple(self.group(role)["DesiredCapacity"] for role in ("master", "worker"))

    def suspended(self):
        return [entry["ProcessName"] for entry in self.group("worker")["SuspendedProcesses"]]

    def records(self):
        return StateTable(self.dynamodb, "state", self.settings.cluster)

    def state(self):
        return self.records().read_state()

    def notifications(self):
        messages = self.sqs.receive_message(QueueUrl=self.settings.master_queue_url, MaxNumberOfMessages=10)
        return [json.loads(message["Body"]) for message in messages.get("Messages", [])]


@pytest.fixture(scope="module")
def standing_moto():
    """moto within this process and without HTTP; one for all tests here, because clients are made for one."""
    with empty_aws():
        yield
    make_client.cache_clear()
    handler._make_client.cache_clear()


@pytest.fixture
def cloud(standing_moto, settings, signals, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")  # Clients that a test makes would otherwise pass moto by.
    moto_api_backend.reset()
    return Cloud(settings, signals)


@pytest.fixture
def launched(cloud):
    """A clock a minute after the verdict on the groups of the cloud."""
    cloud.create_groups()
    clock = SteppedClock()
    cloud.run(clock)
    clock.time += 60
    return clock


@pytest.fixture
def failing(cloud):
    """A cloud that launches fewer workers than the minimum."""
    cloud.settings = replace(cloud.settings, worker_min_capacity=3)
    cloud.create_groups()
    cloud.is_short = True
    return cloud


def activity(name, status, *, minutes=0, **more):
    start = START + timedelta(minutes=minutes)
    return {
        "ActivityId": name,
        "AutoScalingGroupName": "w",
        "Description": "Launching a new EC2 instance",
        "Cause": "At 2026 ...",
        "StartTime": start,
        "EndTime": start,
        "StatusCode": status,
        "Details": '{"Subnet ID":"subnet-1","Availability Zone":"us-east-1a"}',
        **more,
    }


def lose(number):
    return activity(
        f"lost-{number}",
        "Successful",
        Description=f"Terminating EC2 instance: i-{number:017x}",
        Cause="At 2026-11-21T10:00:00Z an instance was taken out of service in response to a user health-check.",
    )


def test_a_full_launch_becomes_the_item_and_a_notification(cloud):
    cloud.create_groups()
    assert cloud.run() == "verdict launched: 4 of 4 nodes"
    state = cloud.state()
    ids = {role: [i["InstanceId"] for i in cloud.group(role)["Instances"]] for role in ("master", "worker")}
    assert state.expected == (*ids["master"], *sorted(ids["worker"]))
    assert (state.phase, state.requested, state.reason) == (Phase.LAUNCHED, 4, NO_REASON)
    assert cloud.notifications() == [{"kind": "notification", "cluster": "training", "generation": 1}]
    assert cloud.calls == ["PutItem", "PutItem", "SendMessage", "PutItem"], "watch, verdict, notification, end of watch"
    assert cloud.run(SteppedClock(age=120.0)) == "the verdict stands: launched"
    assert cloud.calls == []


@pytest.mark.fault(20)
@pytest.mark.defect("D06")
def test_after_the_verdict_nothing_is_changed_any_more(cloud, launched):
    """D06: an adjuster that lives for ever must not cut what a user scales later."""
    cloud.records().write_state(cloud.state().advance(Phase.PUBLISHED))
    cloud.is_short = True
    assert cloud.run(launched) == "a membership is published, which the master maintains"
    assert cloud.calls == ["PutItem"], "only the watch"


def test_workers_that_never_join_a_formed_cluster_stop_the_launches(cloud, launched):
    state = cloud.state().advance(Phase.FORMED)
    cloud.records().write_state(state)
    for cloud.lost, suspended in ((2, []), (3, ["Launch"])):
        assert cloud.run(launched) == "a membership is published, which the master maintains"
        launched.time += 60
        assert cloud.suspended() == suspended
    assert cloud.calls == ["PutItem", "PutItem", "SuspendProcesses", "PutItem"], "watch, trip, and its confirmation"
    assert (
        cloud.records().read(Breaker).reason.cause.startswith("workers must join the cluster, got 3 that died before")
    )
    name = cloud.group("worker")["AutoScalingGroupName"]
    cloud.scaling.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    cloud.run(launched)
    assert not cloud.suspended(), "the user's request holds"
    assert not cloud.records().read(Breaker).is_tripped
    assert cloud.state() == state


def test_a_shortfall_is_adjusted_and_reported_to_the_master(cloud):
    cloud.create_groups()
    cloud.is_short = True
    outcome = cloud.run()
    assert outcome.startswith(
        "verdict launched: 3 of 4 nodes 2 of 3 workers launched, at least 1 were required: Insuff"
    )
    assert cloud.sizes()[1] == 2
    assert not cloud.suspended()
    assert cloud.calls == [
        "PutItem", "PutItem", "SuspendProcesses", "SetDesiredCapacity", "ResumeProcesses", "PutItem", "PutItem",
        "SendMessage", "PutItem",
    ]  # fmt: skip


@pytest.mark.defect("D15")
def test_a_users_own_suspension_is_left(cloud):
    """D15, and its contrary."""
    cloud.create_groups()
    cloud.is_short = True
    name = cloud.group("worker")["AutoScalingGroupName"]
    cloud.scaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["ReplaceUnhealthy"])
    cloud.run()
    assert cloud.suspended() == ["ReplaceUnhealthy"]


@pytest.mark.fault(2)
def test_a_failure_tells_the_stack_and_then_the_item(failing, caplog):
    heard = hear_events(failing.sqs, make_client("events"))
    failing.run()
    (event,) = heard()
    assert (event.kind, event.cluster, event.nodes) == (EventKind.FAILED, "training", 0)
    (body,) = failing.signals.bodies
    assert str(event.reason) == body["Reason"]
    logged = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [(record.getMessage(), record.details) for record in logged] == [(body["Reason"], {"reason": event.reason})]
    assert (body["Status"], body["UniqueId"]) == ("FAILURE", "training")
    assert body["Reason"].startswith(
        "launched workers must be at least 3, got 2 of 3: InsufficientInstanceCapacity in us-"
    )
    assert failing.state().phase is Phase.FAILED
    assert str(failing.state().reason) == body["Reason"]
    assert failing.notifications() == []
    assert failing.sizes() == (1, 3)


@pytest.mark.parametrize("is_stop", [False, True])
def test_an_event_that_cannot_be_sent_fails_no_invocation(failing, caplog, is_stop):
    failing.settings = replace(failing.settings, stop_after_seconds=60 * is_stop)
    heard = hear_events(failing.sqs, make_client("events"))
    outcome = failing.run(denied="PutEvents")
    assert heard() == []
    assert "could not send the event Deep Learning Cluster F" in caplog.text
    assert outcome == "stopped: deadline" if is_stop else failing.state().phase is Phase.FAILED


@pytest.mark.fault(64)
def test_a_signal_that_is_not_taken_is_sent_again(failing):
    failing.signals.status = 500
    with pytest.raises(OSError, match="500"):
        failing.run()
    assert failing.state() is None
    failing.signals.status = 200
    failing.run()
    assert len(failing.signals.requests) == 2
    assert failing.state().phase is Phase.FAILED


@pytest.mark.fault(24, 25)
def test_only_this_clusters_groups_are_found_and_by_their_tags(cloud):
    cloud.create_groups()
    cloud.create_group("worker", 0, cluster="other", name="not-ours")
    cloud.create_group("observer", 0, name="no-role-of-ours")
    found = AutoScalingGroups(cloud.scaling, "training").find()
    assert {(group.name, group.role) for group in found} == {
        ("training-master-master", NodeRole.MASTER),
        ("training-master-worker", NodeRole.WORKER),
    }
    assert all(group.activities is None for group in found)


@pytest.mark.parametrize(
    ("begun", "until", "outcome"),
    [
        (-1, 20, "skipped: another invocation is running"),
        (-30, -10, "verdict launched: 4 of 4 nodes"),
        (0, 0, "verdict launched: 4 of 4 nodes"),
    ],
    ids=["watches", "died", "has given up"],
)
def test_only_one_invocation_watches_the_groups(cloud, begun, until, outcome):
    assert cloud.run() == "instances launch or terminate, or the groups do not exist yet"
    assert cloud.calls == []
    cloud.create_groups()
    now = SteppedClock().time
    assert cloud.records().acquire_lock(now + begun, now + (until or 20))
    if not until:
        cloud.records().release_lock()
    assert cloud.run() == outcome
    assert (cloud.state() is None) is outcome.startswith("skipped")


@pytest.fixture
def stubbed():
    """Groups of a client that answers what it is given."""
    client = boto3.client("autoscaling")
    with Stubber(client) as stubber:
        yield AutoScalingGroups(client, "training"), stubber
        stubber.assert_no_pending_responses()


@pytest.mark.fault(38)
@pytest.mark.defect("D17")
def test_every_page_of_groups_is_read(stubbed):
    groups, stubber = stubbed
    query = {"Filters": [{"Name": f"tag:{CLUSTER_TAG}", "Values": ["training"]}]}
    stubber.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [], "NextToken": "2"}, query)
    leaving = {
        "AutoScalingGroupName": "w",
        "MinSize": 0,
        "MaxSize": 3,
        "DesiredCapacity": 3,
        "DefaultCooldown": 300,
        "AvailabilityZones": ["us-east-1a"],
        "HealthCheckType": "EC2",
        "CreatedTime": START,
        "Status": "Delete in progress",
        "Tags": [{"Key": CLUSTER_TAG, "Value": "training"}, {"Key": ROLE_TAG, "Value": "worker"}],
    }
    page = {"AutoScalingGroups": [leaving]}
    stubber.add_response("describe_auto_scaling_groups", page, query | {"NextToken": "2"})
    (group,) = groups.find()
    assert (group.name, group.desired, group.instances, group.is_deleting) == ("w", 3, (), True)
    assert group.created == START.timestamp()


@pytest.mark.fault(38)
@pytest.mark.defect("D11", "D17")
def test_every_page_of_activities_is_read(stubbed):
    groups, stubber = stubbed
    query = {"AutoScalingGroupName": "w"}
    first = activity("a-2", "Failed", StatusMessage="no capacity", minutes=2)
    stubber.add_response("describe_scaling_activities", {"Activities": [first], "NextToken": "2"}, query)
    old = activity("a-1", "InProgress", Description="Terminating EC2 instance: i-1", Details="{}")
    del old["EndTime"]
    odd = activity("a-0", "Successful", Description="Moving EC2 instance to Standby", Details="no JSON")
    bare = activity("a-bare", "Successful")
    del bare["Details"]
    stubber.add_response("describe_scaling_activities", {"Activities": [old, odd, bare]}, query | {"NextToken": "2"})
    failed, terminating, moving, launched = groups.read_activities("w")
    assert (failed.kind, failed.zone, failed.message, failed.is_failed_launch) == (
        "launch", "us-east-1a", "no capacity", True,
    )  # fmt: skip
    assert failed.start == START.timestamp() + 120
    # D11: details without a zone, or without sense.
    assert (terminating.kind, terminating.zone, terminating.end, terminating.is_in_progress) == (
        "terminate", "", None, True,
    )  # fmt: skip
    assert (moving.kind, moving.zone) == ("other", "")
    assert (launched.kind, launched.zone) == ("launch", "")


def test_pages_of_activities_that_are_too_old_are_not_read(stubbed):
    groups, stubber = stubbed
    for since, pages in ((0, 2), (START.timestamp() + 60, 1)):
        stubber.add_response("describe_scaling_activities", {"Activities": [lose(2)], "NextToken": "2"})
        if pages == 2:
            stubber.add_response("describe_scaling_activities", {"Activities": [lose(1)]})
        found = groups.read_activities("w", since)
        assert [(activity.instance_id, activity.is_loss) for activity in found] == [
            (f"i-{number:017x}", True) for number in (2, 1)[:pages]
        ]


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("describe_scaling_activities", lambda groups: groups.read_activities("w")),
        ("resume_processes", lambda groups: groups.resume("w", ("Launch",))),
    ],
)
def test_a_group_that_goes_while_it_is_read_is_the_only_refusal_that_is_not_raised(stubbed, method, call):
    groups, stubber = stubbed
    stubber.add_client_error(method, "ValidationError", "AutoScalingGroup name not found - null", 400)
    assert call(groups) is None
    stubber.add_client_error(method, "ValidationError", "1 validation error detected", 400)
    with pytest.raises(ClientError):
        call(groups)


def test_no_processes_are_named_none_are_touched(stubbed):
    """Without names Auto Scaling would take all of them; the stub has no answer, so a call would fail."""
    groups, _ = stubbed
    groups.suspend("w", ())
    groups.resume("w", ())


REQUEST = CapacityRequest("request-1", "capacity-request-1", 1, 3, "0", is_creation=True)
VERDICT = ClusterState("training", 1, 1, Phase.LAUNCHED, 2, ("i-00000001",))
RECORDS = {
    "adjustment": Adjustment(1, "w", 4, 4, 3, Reason("why"), ("Launch",), 77),
    "breaker": Breaker(1, "w", ("i-00000001",), lease_until=77, is_tripped=True, reason=Reason("why", "resume")),
    "stop": StopRecord(1, cause="deadline", lease_until=77),
    "request": RequestedCapacity(
        1,
        REQUEST,
        ("request-1",),
        asks=(GroupTarget("workers", 0, 3), GroupTarget("master", 0, 1)),
        former=(GroupTarget("workers", 3, 0),),
        lease_until=77,
    ),
}


@pytest.mark.fault(36)
@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_read_as_it_was_written_and_the_slower_of_two_writers_loses(cloud, name):
    records, record = cloud.records(), RECORDS[name]
    assert records.read(type(record)) is None
    assert not records.write(replace(record, revision=2))
    assert records.write(record)
    assert not records.write(replace(record, lease_until=78))
    assert records.read(type(record)) == record
    closed = replace(record, revision=2, lease_until=0)
    assert records.write(closed)
    assert not records.write(replace(closed, lease_until=78))
    assert records.read(type(record)) == closed
    keys = [item["cluster"]["S"] for item in cloud.dynamodb.scan(TableName="state")["Items"]]
    assert keys == [f"training#{name}"]


@pytest.mark.fault(28, 36)
@pytest.mark.parametrize("count", [1, 15_000])
def test_a_verdict_is_read_as_it_was_written_and_the_slower_of_two_writers_loses(cloud, count):
    records = cloud.records()
    verdict = replace(VERDICT, requested=count, expected=tuple(f"i-{number:017x}" for number in range(count)))
    assert records.write_state(verdict)
    assert not records.write_state(replace(verdict, reason=Reason("slower")))
    assert records.read_state() == verdict
    items = cloud.dynamodb.scan(TableName="state")["Items"]
    assert (len(items) > 1) is (count > 1), "one item would not hold fifteen thousand"


@pytest.mark.parametrize("revision", [{}, {"revision": {"N": "7"}}], ids=["none", "7"])
@pytest.mark.parametrize("document", [{}, {"S": ""}, {"S": "[]"}, {"S": '{"revision": "one"}'}])
@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_cannot_be_read_is_reported_and_replaced_and_delays_nothing(
    cloud, caplog, name, document, revision
):
    cloud.create_groups()
    fields = {"document": document} if document else {}
    cloud.dynamodb.put_item(TableName="state", Item={"cluster": {"S": f"training#{name}"}, **fields, **revision})
    blank = cloud.records().read(type(RECORDS[name]))
    assert f"record training#{name} must be readable" in caplog.text
    assert (blank.revision, blank.lease_until) == (7 if revision else 0, 0)
    assert cloud.run().startswith("verdict launched")
    if name == "request":
        assert cloud.request("Update", workers=2)["Status"] == "SUCCESS"
        assert cloud.sizes()[1] == 2
    following = replace(cloud.records().read(type(RECORDS[name])), lease_until=77)
    following = replace(following, revision=following.revision + 1)
    assert cloud.records().write(following)
    assert cloud.records().read(type(RECORDS[name])) == following


def test_a_stack_is_answered_when_its_groups_were_asked(cloud):
    cloud.create_groups()
    for role in ("worker", "master"):
        name = cloud.group(role)["AutoScalingGroupName"]
        cloud.scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=0)
    answer = cloud.request("Create", workers=3)
    assert answer == {
        "StackId": "stack",
        "RequestId": "request-of-Create",
        "LogicalResourceId": "RequestedCapacity",
        "PhysicalResourceId": "capacity-request-of-Create",
        "Status": "SUCCESS",
    }
    assert cloud.sizes() == (1, 3)
    assert cloud.calls == ["PutItem", "PutItem", "SetDesiredCapacity", "SetDesiredCapacity", "PutItem"]
    cloud.request("Create", workers=3)
    assert cloud.calls == [], "the same request again"
    cloud.request("Delete", workers=3, PhysicalResourceId="capacity-request-of-Create")
    assert cloud.records().read(RequestedCapacity).is_over


def test_a_stack_is_not_answered_twice_when_its_url_fails_but_the_request_is_tried_again(cloud):
    cloud.create_groups()
    cloud.signals.status = 503
    with pytest.raises(OSError, match="503"):
        cloud.request("Update", workers=2)
    assert len(cloud.signals.requests) == 1
    cloud.signals.status = 200
    assert cloud.request("Update", workers=2)["Status"] == "SUCCESS"
    assert cloud.calls == [], "the groups were asked before"


@pytest.fixture
def environment(cloud, monkeypatch):
    # Two looks without a pause between them, so that no test sleeps.
    for name, value in replace(cloud.settings, settle_seconds=0).to_environment().items():
        monkeypatch.setenv(name, value)
    return cloud


@pytest.mark.fault(21, 22)
@pytest.mark.defect("D10", "D11")
@pytest.mark.parametrize("event", [None, {}, {"Records": [{"Sns": {"Message": "{"}}]}, {"source": "aws.events"}, [1]])
def test_every_event_leads_to_the_same_reconciliation(environment, event, caplog):
    environment.create_groups(workers=1)
    caplog.set_level(logging.INFO, "capacity_adjuster")
    assert handler.handle(event, Context()) == {"outcome": "verdict launched: 2 of 2 nodes"}
    assert caplog.messages[0].startswith("event: ")
    assert caplog.messages[-1] == "outcome: verdict launched: 2 of 2 nodes"
    (metrics,) = [found for record in caplog.records if (found := getattr(record, "metrics", None))]
    assert (metrics[CAPACITY_ASKED], metrics[CAPACITY_LAUNCHED], metrics[LAUNCH_FAILURES]) == (2, 2, 0)
    assert metrics[FORMATION_PENDING_SECONDS] > 0


@pytest.mark.fault(21)
def test_a_test_of_the_notifications_costs_no_call(environment):
    environment.create_groups(workers=1)
    test = json.dumps({"Event": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": "workers"})
    launch = json.dumps({"Event": "autoscaling:EC2_INSTANCE_LAUNCH", "AutoScalingGroupName": "workers"})
    event = {"Records": [{"Sns": {"Message": test}}]}
    assert handler.handle(event, Context()) == {"outcome": "notifications are set up"}
    event["Records"].append({"Sns": {"Message": launch}})
    assert handler.handle(event, Context()) == {"outcome": "verdict launched: 2 of 2 nodes"}


@pytest.mark.defect("D12")
def test_an_error_is_logged_with_its_cause_and_raised(environment, caplog):
    """D12: the error itself must not be lost."""
    environment.create_groups(workers=1)
    environment.dynamodb.delete_table(TableName="state")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        handler.handle({}, Context())
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "ResourceNotFoundException" in record.exc_text


def test_a_cluster_past_its_time_stops_with_four_changes_and_rests(cloud, launched):
    cloud.settings = replace(cloud.settings, stop_after_seconds=600)
    launched.time = START.timestamp() + 600
    assert cloud.run(launched) == "stopped: deadline"
    assert cloud.sizes() == (0, 0)
    assert cloud.calls == ["PutItem", "SetDesiredCapacity", "SetDesiredCapacity", "PutItem"]
    launched.time += 60
    assert cloud.run(launched) == "the cluster is stopped"
    assert cloud.calls == []


@pytest.mark.parametrize(("topic", "desired"), [("budget", 0), ("another", 1)])
def test_only_the_topic_of_the_budget_stops_the_cluster(environment, monkeypatch, topic, desired):
    monkeypatch.setenv("DEEPLEARNING_BUDGET_TOPIC_ARN", "arn:aws:sns:us-east-1:1:budget")
    environment.create_groups(workers=1)
    sns = {"TopicArn": f"arn:aws:sns:us-east-1:1:{topic}", "MessageId": "m-1", "Message": "AWS Budget Notification"}
    handler.handle({"Records": [{"EventSource": "aws:sns", "Sns": sns}]}, Context())
    assert environment.sizes() == (desired, desired)


def test_a_missing_setting_is_named(monkeypatch):
    with pytest.raises(ContractError, match="DEEPLEARNING_CLUSTER"):
        handler.handle({}, Context())
