"""Monitoring of a rehearsed cluster: metrics by name, and events that become texts."""

import json

import pytest

from cdk_rehearsal.embedded_aws.messaging.event_bus import require_placeholders, transform
from cdk_rehearsal.embedded_aws.resources.operations import list_metrics
from cdk_rehearsal.errors import AssemblyError

EVENT = {"detail-type": "Failed", "detail": {"cluster": "mine", "nodes": 2, "reason": 'no "capacity"\nleft'}}
PATHS = {"kind": "$.detail-type", "nodes": "$.detail.nodes", "reason": "$.detail.reason", "none": "$.detail.x.y"}


def test_lists_the_metrics_of_a_dashboard_and_of_its_searches():
    search = "SEARCH('{Sample,Cluster,Node} MetricName=\"Load\" Cluster=\"c\"', 'Average', 60)"
    rows = [["Sample", "Lost", "Cluster", "c", {"label": "x"}], [{"expression": search}]]
    body = {"widgets": [{"properties": {"markdown": "x"}}, {"properties": {"metrics": rows}}]}
    assert list(list_metrics(body)) == [("Sample", "Lost", ("Cluster",)), ("Sample", "Load", ("Cluster", "Node"))]


def test_writes_an_events_fields_into_the_text_of_a_target():
    text = transform(
        EVENT, {"InputPathsMap": PATHS, "InputTemplate": json.dumps("<kind>: <nodes> nodes. <reason><none>")}
    )
    assert text == 'Failed: 2 nodes. no "capacity"\nleft'


@pytest.mark.parametrize(("template", "wrong"), [('{"a": <kind>}', "{"), ('"<kind> <other>"', "other")])
def test_refuses_a_template_that_is_no_text_or_names_what_has_no_path(template, wrong):
    with pytest.raises(AssemblyError, match=f"InputTemplate must be a JSON string .*{wrong}"):
        transform(EVENT, {"InputPathsMap": PATHS, "InputTemplate": template})


def test_a_target_whose_template_names_what_has_no_path_fails_its_rule(deploy_template, sample_template):
    transformer = {"InputPathsMap": PATHS, "InputTemplate": '"<kind> <other>"'}
    sample_template["Resources"]["Rule"]["Properties"]["Targets"][0]["InputTransformer"] = transformer
    outcome = deploy_template(sample_template).end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert (
        "InputTemplate of target Target0 must name placeholders of InputPathsMap alone, got other" in outcome["reason"]
    )


def test_placeholders_that_eventbridge_defines_itself_need_no_path():
    template = '{"rule": <aws.events.rule-arn>, "kind": "<kind>"}'
    require_placeholders({"Id": "one", "InputTransformer": {"InputPathsMap": PATHS, "InputTemplate": template}})


@pytest.mark.parametrize("is_admitted", [True, False])
def test_publishes_the_text_to_the_topic_of_the_rule_where_its_policy_admits_events(
    deploy_template, sample_template, is_admitted
):
    resources = sample_template["Resources"]
    resources["Told"] = {"Type": "AWS::SNS::Topic"}
    service = "events.amazonaws.com" if is_admitted else "budgets.amazonaws.com"
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sns:Publish",
        "Resource": {"Ref": "Told"},
    }
    resources["ToldPolicy"] = {
        "Type": "AWS::SNS::TopicPolicy",
        "Properties": {
            "PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]},
            "Topics": [{"Ref": "Told"}],
        },
    }
    resources["Heard"] = {"Type": "AWS::SQS::Queue"}
    resources["Rule"] = {
        "Type": "AWS::Events::Rule",
        "Properties": {
            "EventPattern": {"source": ["deeplearning-cdk"]},
            "State": "ENABLED",
            "Targets": [
                {
                    "Id": "Topic",
                    "Arn": {"Ref": "Told"},
                    "InputTransformer": {"InputPathsMap": PATHS, "InputTemplate": '"<kind>: <reason>"'},
                }
            ],
        },
    }
    cloud = deploy_template(sample_template, minute_seconds=3600)
    for name in ("Rule", "ToldPolicy", "Heard"):
        cloud.observation(f"{name} CREATE_COMPLETE")
    sqs, queue = cloud.client("sqs"), cloud.physical_id("Heard")
    cloud.listen(cloud.physical_id("Told"), queue)
    detail = EVENT["detail"]
    assert cloud.command("send_event", source="deeplearning-cdk", detail_type="Failed", detail=detail) == 1
    messages = sqs.receive_message(QueueUrl=queue).get("Messages", [])  # a target gets an event before the call ends
    texts = [json.loads(message["Body"])["Message"] for message in messages]
    assert texts == (['Failed: no "capacity"\nleft'] if is_admitted else [])


def test_fails_a_stack_whose_dashboard_names_an_unknown_metric(deploy_template, sample_template):
    body = {"widgets": [{"properties": {"metrics": [["Sample", "Unwritten", "Cluster", "c"]]}}]}
    sample_template["Resources"]["Dashboard"] = {
        "Type": "AWS::CloudWatch::Dashboard",
        "Properties": {"DashboardName": "trial", "DashboardBody": json.dumps(body)},
    }
    cloud = deploy_template(sample_template, minute_seconds=3600)
    outcome = cloud.end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert "nothing writes Unwritten by Cluster" in outcome["reason"]
