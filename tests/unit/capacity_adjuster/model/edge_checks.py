"""Checks of the adjuster's calls to AWS, which can be run on patched code too."""

import functools
import json
from datetime import datetime, timezone
from unittest import mock

import boto3
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from capacity_adjuster import handler
from capacity_adjuster.aws.auto_scaling_groups import AutoScalingGroups
from capacity_adjuster.aws.state_table import StateTable
from capacity_adjuster.events.notifications import describe_event
from capacity_adjuster.policy.breaker import Breaker
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.reconcile.adapters import Adapters
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG, NodeRole
from deeplearning_contract.reason import Reason
from deeplearning_contract.settings import AdjusterSettings

START = datetime(2026, 11, 21, 10, 0, tzinfo=timezone.utc)
SETTINGS = AdjusterSettings("training", "state", "queue", "url", 1, 10, "cr-ours")
STATE = ClusterState("training", 1, 1, Phase.LAUNCHED, 2, ("i-00000001", "i-00000002"))
KINDS = ("LAUNCH", "LAUNCH_ERROR", "TERMINATE", "TERMINATE_ERROR")
make_client = functools.cache(boto3.client)


class Table:
    """Keeps what it is asked to write."""

    def __init__(self, item=None):
        self.written = []
        self.item = item or {}

    def put_item(self, **request):
        self.written.append(request)

    def get_item(self, **request):
        return {"Item": self.item}


def check_that_every_write_is_conditional():
    table = Table()
    records = StateTable(table, "state", "training")
    records.write_state(STATE)
    records.write_state(STATE.advance(Phase.LAUNCHED))
    for revision in (1, 2):
        records.write(Adjustment(revision, "w", 4, 4, 3, Reason("why"), (), 0))
        records.write(Breaker(revision, "w"))
    assert len(table.written) == 6
    assert all("ConditionExpression" in request for request in table.written), "a write was unconditional"


def check_that_any_event_is_described():
    for kind in KINDS:
        message = json.dumps({"Event": f"autoscaling:EC2_INSTANCE_{kind}", "AutoScalingGroupName": "workers"})
        assert kind in describe_event({"Records": [{"Sns": {"Message": message}}]})


def describe(name, tags):
    return {
        "AutoScalingGroupName": name,
        "MinSize": 0,
        "MaxSize": 3,
        "DesiredCapacity": 3,
        "DefaultCooldown": 300,
        "AvailabilityZones": ["us-east-1a"],
        "HealthCheckType": "EC2",
        "CreatedTime": START,
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }


def act(name, **more):
    return {
        "ActivityId": name,
        "AutoScalingGroupName": "w",
        "Description": "Launching a new EC2 instance",
        "Cause": "At 2026 ...",
        "StartTime": START,
        "StatusCode": "Successful",
        **more,
    }


def check_that_activities_may_lack_details():
    client = make_client("autoscaling")
    activities = [act("a"), act("b", Details="{}"), act("c", Details="no JSON")]
    with Stubber(client) as stubber:
        stubber.add_response("describe_scaling_activities", {"Activities": activities})
        found = AutoScalingGroups(client, "training").read_activities("w")
    assert [activity.zone for activity in found] == ["", "", ""]


def check_that_the_role_is_the_tags():
    client = make_client("autoscaling")
    groups = [
        describe(name, {CLUSTER_TAG: "training", ROLE_TAG: role})
        for name, role in (("the-master-WorkerGroup", "worker"), ("WorkerCluster-Nodes", "master"))
    ]
    with Stubber(client) as stubber:
        stubber.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": groups})
        found = AutoScalingGroups(client, "training").find()
    assert [group.role for group in found] == [NodeRole.WORKER, NodeRole.MASTER], "the role is not the tag's"


def check_that_every_page_is_read():
    client = make_client("autoscaling")
    with Stubber(client) as stubber:
        stubber.add_response("describe_scaling_activities", {"Activities": [act("a")], "NextToken": "2"})
        stubber.add_response("describe_scaling_activities", {"Activities": [act("b")]})
        found = AutoScalingGroups(client, "training").read_activities("w")
    assert [activity.activity_id for activity in found] == ["a", "b"], "a page was left out"


class Context:
    """Lambda's context object, as far as it is used."""

    def get_remaining_time_in_millis(self):
        return 60_000


def handle(event, adapters):
    """Let the handler meet these adapters; return what it says."""
    with (
        mock.patch.object(handler, "make_adapters", adapters),
        mock.patch.dict("os.environ", SETTINGS.to_environment()),
    ):
        return handler.handle(event, Context())["outcome"]


def check_that_an_error_is_raised_as_it_is():
    def refuse(*_):
        raise ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, "DescribeAutoScalingGroups")

    try:
        handle({}, refuse)
    except ClientError:
        return
    except AttributeError as error:
        raise AssertionError(f"another error hides it: {error}") from None
    raise AssertionError("the error was swallowed")


def warn(reservation, kind="Capacity Block Reservation Expiration Warning"):
    """Return EC2's warning as EventBridge delivers it."""
    return {
        "version": "0",
        "detail-type": kind,
        "source": "aws.ec2",
        "resources": [f"arn:aws:ec2:us-east-1:123456789012:capacity-reservation/{reservation}"],
        "detail": {"capacity-reservation-id": reservation, "end-date": "2026-11-22T11:30:00Z"},
    }


def handle_warning(event, state=STATE):
    """Let the handler meet a warning; return what it says, what it wrote and whom it rang."""
    table, notifications = Table(state.to_item() if state else None), []
    records = StateTable(table, "state", "training")
    outcome = handle(event, lambda *_: Adapters(None, records, notifications.append, None, None, None))
    return outcome, table.written, notifications


def check_that_another_block_is_ignored():
    _, written, notifications = handle_warning(warn("cr-of-another-cluster"))
    assert (written, notifications) == ([], []), "another cluster's block must be ignored"


CHECKS = (
    check_that_every_write_is_conditional,
    check_that_any_event_is_described,
    check_that_activities_may_lack_details,
    check_that_the_role_is_the_tags,
    check_that_every_page_is_read,
    check_that_an_error_is_raised_as_it_is,
    check_that_another_block_is_ignored,
)
