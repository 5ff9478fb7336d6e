"""Events of AWS services: which rules match them, and what a matching rule does."""

import json

import pytest

from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.messaging.event_bus import EventBus, is_match, require_pattern
from cdk_rehearsal.errors import AssemblyError
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.reason import Reason

WARNING = "Capacity Block Reservation Expiration Warning"
EVENT = {
    "source": "aws.ec2",
    "detail-type": WARNING,
    "resources": ["arn:one", "arn:two"],
    "detail": {"capacity-reservation-id": "cr-1", "count": 1, "is-last": True},
}


def test_the_timeline_shows_the_sentence_of_a_clusters_event():
    seen = []
    reason = Reason("too few workers", "raise the quota")
    event = ClusterEvent(kind=EventKind.FAILED, cluster="c", generation=0, nodes=1, reason=reason)
    entry = event.to_entry()
    document = {"source": entry["Source"], "detail-type": entry["DetailType"], "detail": json.loads(entry["Detail"])}
    assert EventBus(None, None, Observations(seen.append)).send(document) == 0
    assert [each.text for each in seen] == [f"{EventKind.FAILED.value} {reason}"]


@pytest.mark.parametrize(
    "pattern",
    [
        {"source": ["aws.ec2"]},
        {"source": ["aws.s3", "aws.ec2"], "detail-type": [WARNING]},
        {"detail-type": [{"prefix": "Capacity Block"}]},
        {"detail-type": [{"suffix": "Expiration Warning"}]},
        {"detail-type": [{"wildcard": "Capacity Block*Expiration Warning"}]},
        {"resources": ["arn:two"]},
        {"detail": {"capacity-reservation-id": ["cr-0", "cr-1"], "count": [1]}},
        {"detail": {"is-last": [True]}},
    ],
)
def test_matches_an_event_that_has_every_field_with_one_of_its_values(pattern):
    require_pattern(pattern)
    assert is_match(pattern, EVENT)


@pytest.mark.parametrize(
    "pattern",
    [
        {"source": ["aws.s3"]},
        {"source": ["aws.ec2"], "detail-type": ["Capacity Block"]},
        {"detail-type": [{"prefix": "Block"}]},
        {"detail-type": [{"wildcard": "Capacity.Block*"}]},
        {"detail": {"capacity-reservation-id": ["cr-2"]}},
        {"detail": {"other": ["x"]}},
        {"detail": {"count": [True]}},
        {"source": {"below": ["x"]}},
        {"detail": ["cr-1"]},
    ],
)
def test_does_not_match_an_event_that_lacks_one(pattern):
    require_pattern(pattern)
    assert not is_match(pattern, EVENT)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"source": [{"anything-but": "x"}]}, "EventPattern.source must use plain values, prefix and suffix and wild"),
        ({"detail": {"n": [{"numeric": [">", 1]}]}}, "EventPattern.detail.n must use plain values"),
        ({"source": [{"prefix": {"equals-ignore-case": "x"}}]}, "EventPattern.source must use plain values"),
        ({"$or": [{"source": ["x"]}]}, r"EventPattern must not use \$or"),
        ({"source": []}, "EventPattern.source must list at least one value"),
        ({"source": "aws.ec2"}, "EventPattern.source must be an object with keys"),
        ({}, "EventPattern must be an object with keys"),
    ],
)
def test_refuses_patterns_that_it_cannot_match(pattern, message):
    with pytest.raises(AssemblyError, match=message):
        require_pattern(pattern)


def add_rule(template, pattern, state="ENABLED"):
    """Add a rule with a pattern to the sample template, with the permission that it needs."""
    resources = template["Resources"]
    target = {"Id": "Target0", "Arn": {"Fn::GetAtt": ["Function", "Arn"]}}
    resources["Warnings"] = {
        "Type": "AWS::Events::Rule",
        "Properties": {"EventPattern": pattern, "State": state, "Targets": [target]},
    }
    resources["WarningsPermission"] = {
        "Type": "AWS::Lambda::Permission",
        "Properties": {
            "Action": "lambda:InvokeFunction",
            "FunctionName": {"Fn::GetAtt": ["Function", "Arn"]},
            "Principal": "events.amazonaws.com",
            "SourceArn": {"Fn::GetAtt": ["Warnings", "Arn"]},
        },
    }


def test_invokes_the_function_of_a_rule_that_matches_and_records_it(deploy_template, sample_template):
    pattern = {"source": ["aws.ec2"], "detail-type": [{"prefix": "Capacity Block"}]}
    add_rule(sample_template, pattern)
    cloud = deploy_template(sample_template, minute_seconds=3600)
    for _ in range(3):
        cloud.observation("in service")  # then the rule exists, for the groups wait for the function's permissions
    cloud.observation("Warnings CREATE_COMPLETE")
    cloud.observation("WarningsPermission CREATE_COMPLETE")

    detail = {"capacity-reservation-id": "cr-1"}
    assert cloud.command("send_event", source="aws.ec2", detail_type="Other", detail=detail) == 0
    assert cloud.command("send_event", source="aws.ec2", detail_type=WARNING, detail=detail) == 1
    cloud.observation("events → ")
    (invocation,) = [row for row in cloud.command("report")["invocations"] if row["source"] == "events"]
    assert (invocation["error"], invocation["attempt"]) == ("", 1)
    assert f"handling {WARNING}" in invocation["log"]

    cloud.client("events").disable_rule(Name=cloud.physical_id("Warnings"))
    assert cloud.command("send_event", source="aws.ec2", detail_type=WARNING, detail=detail) == 0


def test_a_pattern_that_cannot_be_matched_is_found_before_any_creation(deploy_template, sample_template):
    add_rule(sample_template, {"source": [{"anything-but": "aws.s3"}]})
    answer = deploy_template(sample_template, minute_seconds=3600).answer
    assert "Warnings: AWS::Events::Rule property EventPattern = {'source': [{'anything-but': 'aws.s3'}]}" in answer


QUEUE = {"Fn::GetAtt": ["Queue", "Arn"]}


def make_queue_rule(service="events.amazonaws.com", **properties):
    """Return the resources of a rule with a queue as its target, whose policy admits a service."""
    allowed = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sqs:SendMessage", "Resource": QUEUE}
    policy = {"PolicyDocument": {"Version": "2012-10-17", "Statement": [allowed]}, "Queues": [{"Ref": "Queue"}]}
    target = {"Id": "a", "Arn": QUEUE, **properties.pop("target", {})}
    return {
        "Queue": {"Type": "AWS::SQS::Queue", "Properties": {}},
        "Policy": {"Type": "AWS::SQS::QueuePolicy", "Properties": policy},
        "Rule": {"Type": "AWS::Events::Rule", "DependsOn": "Policy", "Properties": {**properties, "Targets": [target]}},
    }


def receive(cloud, seconds=20):
    """Return the body of the queue's next message; None where none comes in time."""
    answer = cloud.client("sqs").receive_message(QueueUrl=cloud.physical_id("Queue"), WaitTimeSeconds=seconds)
    messages = answer.get("Messages", [])
    return messages[0]["Body"] if messages else None


def test_a_disabled_rule_delivers_nothing_to_a_queue(deploy_template):
    rule = make_queue_rule(EventPattern={"source": ["mine"]}, State="DISABLED")
    cloud = deploy_template({"Resources": rule})
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    send = {"source": "mine", "detail_type": "a", "detail": {"number": 1}}
    assert cloud.command("send_event", **send) == 0
    events = cloud.client("events")
    events.enable_rule(Name=cloud.physical_id("Rule"))
    events.put_events(Entries=[{"Source": "mine", "DetailType": "a", "Detail": '{"number": 2}'}])
    assert json.loads(receive(cloud))["detail"] == {"number": 2}
    assert receive(cloud, 0) is None


TRANSFORMER = {"InputPathsMap": {"kind": "$.detail-type"}, "InputTemplate": '"it is a <kind>"'}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"InputTransformer": TRANSFORMER}, "it is a Scheduled Event"),
        ({"Input": '{"a": 1}'}, '{"a": 1}'),
    ],
)
def test_a_schedule_sends_the_input_of_its_target_to_a_queue(deploy_template, target, said):
    """EventBridge user guide, "Amazon EventBridge input transformation"."""
    rule = make_queue_rule(ScheduleExpression="rate(1 minute)", target=target)
    cloud = deploy_template({"Resources": rule}, minute_seconds=0.2)
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    assert receive(cloud) == said


def test_a_queue_whose_policy_does_not_admit_eventbridge_gets_nothing(deploy_template):
    """EventBridge user guide, "Using resource-based policies": a queue's policy admits events.amazonaws.com."""
    rule = make_queue_rule("sns.amazonaws.com", EventPattern={"source": ["mine"]})
    cloud = deploy_template({"Resources": rule})
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    assert cloud.command("send_event", source="mine", detail_type="a", detail={}) == 1
    assert receive(cloud, 0) is None


def test_a_log_group_gets_events_as_lines(deploy_template):
    group = {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "/aws/events/mine"}}
    target = {"Id": "a", "Arn": {"Fn::GetAtt": ["Group", "Arn"]}}
    rule = {"EventPattern": {"source": ["mine"]}, "Targets": [target]}
    resources = {"Group": group, "Rule": {"Type": "AWS::Events::Rule", "Properties": rule}}
    cloud = deploy_template({"Resources": resources})
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    assert cloud.command("send_event", source="mine", detail_type="a", detail={}) == 1
    (line,) = cloud.client("logs").filter_log_events(logGroupName="/aws/events/mine")["events"]
    assert json.loads(line["message"])["source"] == "mine"


def test_a_function_gets_what_the_input_transformer_makes_of_an_event(deploy_template):
    code = "def handle(event, _):\n    print('got', repr(event))"
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = {"Version": "2012-10-17", "Statement": [trust]}
    arn = {"Fn::GetAtt": ["Function", "Arn"]}
    target = {"Id": "a", "Arn": arn, "InputTransformer": TRANSFORMER}
    function = {"Handler": "index.handle", "Runtime": "python3.13", "Role": {"Fn::GetAtt": ["Role", "Arn"]}}
    admitted = {"Action": "lambda:InvokeFunction", "FunctionName": arn, "Principal": "events.amazonaws.com"}
    rule = {"EventPattern": {"source": ["mine"]}, "Targets": [target]}
    resources = {
        "Role": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": document}},
        "Function": {"Type": "AWS::Lambda::Function", "Properties": {**function, "Code": {"ZipFile": code}}},
        "Admitted": {"Type": "AWS::Lambda::Permission", "Properties": admitted},
        "Rule": {"Type": "AWS::Events::Rule", "Properties": rule},
    }
    cloud = deploy_template({"Resources": resources})
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    assert cloud.command("send_event", source="mine", detail_type="thing", detail={}) == 1
    cloud.observation("events → ")
    (invocation,) = cloud.command("report")["invocations"]
    assert "got 'it is a thing'" in invocation["log"]
