"""Lines that a node logs reach the log group and the rules of the stack, as far as the node's role allows."""

import time

import pytest
from botocore.exceptions import ClientError

SOURCE = "sample.cluster"
EVENT = {"Entries": [{"Source": SOURCE, "DetailType": "Formed", "Detail": '{"nodes": 3}'}]}


def allow_and_listen(template):
    """Let the master write its streams and tell of the cluster, and let a function hear of it."""
    resources = template["Resources"]
    resources["NodeLog"] = {"Type": "AWS::Logs::LogGroup", "Properties": {}}
    resources["MasterRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"] += [
        {
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": {
                "Fn::Sub": "arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:${NodeLog}:"
                "log-stream:master/*"
            },
        },
        {
            "Effect": "Allow",
            "Action": "events:PutEvents",
            "Resource": {"Fn::Sub": "arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:event-bus/default"},
            "Condition": {"StringEquals": {"events:source": SOURCE}},
        },
    ]
    resources["Formed"] = {
        "Type": "AWS::Events::Rule",
        "Properties": {
            "EventPattern": {"source": [SOURCE], "detail-type": ["Formed"]},
            "State": "ENABLED",
            "Targets": [{"Id": "Target0", "Arn": {"Fn::GetAtt": ["Function", "Arn"]}}],
        },
    }
    resources["FormedPermission"] = {
        "Type": "AWS::Lambda::Permission",
        "Properties": {
            "Action": "lambda:InvokeFunction",
            "FunctionName": {"Fn::GetAtt": ["Function", "Arn"]},
            "Principal": "events.amazonaws.com",
            "SourceArn": {"Fn::GetAtt": ["Formed", "Arn"]},
        },
    }


def test_lines_arrive_and_events_reach_the_rules_of_the_stack(deploy_template, sample_template):
    allow_and_listen(sample_template)
    cloud = deploy_template(sample_template, minute_seconds=3600)
    master, worker = cloud.machine("master"), cloud.machine("worker")
    cloud.observation("FormedPermission CREATE_COMPLETE")
    group = cloud.physical_id("NodeLog")
    name = master["instance_id"]
    stream = f"master/{name}"

    logs = cloud.client("logs", master)
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    now = int(time.time() * 1000)
    logs.put_log_events(
        logGroupName=group,
        logStreamName=stream,
        logEvents=[{"timestamp": now, "message": "hello"}],
    )
    answer = cloud.client("logs").get_log_events(logGroupName=group, logStreamName=stream)
    assert [event["message"] for event in answer["events"]] == ["hello"]
    with pytest.raises(ClientError, match="AccessDenied"):
        cloud.client("logs", worker).create_log_stream(logGroupName=group, logStreamName=stream)

    answer = cloud.client("events", master).put_events(**EVENT)
    assert answer["FailedEntryCount"] == 0
    cloud.observation("events → ")
    (invocation,) = [row for row in cloud.command("report")["invocations"] if row["source"] == "events"]
    assert "handling Formed" in invocation["log"]
    with pytest.raises(ClientError, match="AccessDenied"):
        cloud.client("events", worker).put_events(**EVENT)
    forged = {"Entries": [EVENT["Entries"][0] | {"Source": "somebody.else"}]}
    with pytest.raises(ClientError, match="AccessDenied"):
        cloud.client("events", master).put_events(**forged)
