"""Responses of AWS about clusters, made from a few words."""

import base64
import json

from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.log_record import LogLine, Speaker
from deeplearning_contract.membership import Member
from deeplearning_view.aws_responses import AwsResponses

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH5Y"
MASTER_ID, WORKER_ID, LOST_ID = "i-0000000000000000a", "i-0000000000000000b", "i-0000000000000000c"
IMAGE = "ami-0123456789abcdef0"
BEGUN = "2026-11-22T10:00:00+00:00"
SECONDS = 1_795_341_600.0
"""The same time, since the epoch."""
NAME = "training"
ARN = f"arn:aws:cloudformation:us-east-1:123456789012:stack/{NAME}/1"


def make_resource(logical_id, resource_type, physical_id, status="CREATE_COMPLETE"):
    return {
        "LogicalResourceId": logical_id,
        "ResourceType": resource_type,
        "PhysicalResourceId": physical_id,
        "ResourceStatus": status,
    }


RESOURCES = [
    make_resource("ClusterNodesMasterGroup841CD819", "AWS::AutoScaling::AutoScalingGroup", "masters"),
    make_resource("ClusterNodesWorkersGroup60E864BB", "AWS::AutoScaling::AutoScalingGroup", "workers"),
    make_resource("ClusterCoordinationStateTable9A98CF07", "AWS::DynamoDB::Table", "states"),
    make_resource("OtherTable11112222", "AWS::DynamoDB::Table", "another"),
    make_resource("ClusterCapacityAdjusterLog563550F0", "AWS::Logs::LogGroup", "adjuster-log"),
    make_resource("ClusterNodeLogFD57EBF1", "AWS::Logs::LogGroup", "node-log"),
]


def make_event(logical_id, status, reason="", resource_type="AWS::CloudFormation::WaitCondition", at=BEGUN):
    reasons = {"ResourceStatusReason": reason} if reason else {}
    return {
        "LogicalResourceId": logical_id,
        "PhysicalResourceId": logical_id,
        "ResourceType": resource_type,
        "ResourceStatus": status,
        "Timestamp": at,
        **reasons,
    }


def make_signalled_event(reason):
    text = f"WaitCondition received failed message: '{reason}' for uniqueId: training-1"
    return make_event("ClusterCoordinationFormation623FBE21", "CREATE_FAILED", text)


def make_group(name, role, desired, instances, **others):
    return {
        "AutoScalingGroupName": name,
        "DesiredCapacity": desired,
        "Instances": [
            {"InstanceId": instance_id, "LifecycleState": "InService", "HealthStatus": "Healthy"}
            for instance_id in instances
        ],
        "Tags": [{"Key": "deeplearning:cluster", "Value": "training-1"}, {"Key": "deeplearning:role", "Value": role}],
        "SuspendedProcesses": [],
        **others,
    }


def make_instance(instance_id, role, address, state="running", image=IMAGE):
    return {
        "InstanceId": instance_id,
        "InstanceType": "g5.12xlarge",
        "ImageId": image,
        "PrivateIpAddress": address,
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "State": {"Name": state},
        "LaunchTime": BEGUN,
        "Tags": [{"Key": "deeplearning:role", "Value": role}],
    }


def make_failed_launch(message, status="Failed"):
    return {
        "Description": "Launching a new EC2 instance",
        "Cause": "At 2026-11-22T10:00:00Z an instance was started",
        "StatusCode": status,
        "StatusMessage": f"{message} Launching EC2 instance failed.",
        "StartTime": BEGUN,
    }


def make_termination(instance_id, cause):
    return {
        "Description": f"Terminating EC2 instance: {instance_id}",
        "Cause": f"At 2026-11-22T10:00:00Z {cause}.",
        "StatusCode": "Successful",
        "StartTime": BEGUN,
    }


def make_item(phase=Phase.FORMED, members=(MASTER_ID, WORKER_ID), **changes):
    state = ClusterState(
        cluster="training-1",
        revision=3,
        generation=1,
        phase=phase,
        requested=2,
        expected=(MASTER_ID, WORKER_ID),
        members=tuple(Member(name, f"10.0.0.{4 + rank}", 4, HOST_KEY) for rank, name in enumerate(members)),
        user_key=HOST_KEY if members else "",
        **changes,
    )
    return state.to_item()


def make_line(instance_id, role, message, level="INFO", seconds=0.0, **details):
    line = LogLine(SECONDS + seconds, level, Speaker("training-1", instance_id, role), 1, "agent", message, details)
    stream = line.speaker.stream if role != "adjuster" else "2026/11/22/[$LATEST]1"
    return {
        "message": line.to_text(),
        "logStreamName": stream,
        "timestamp": int(line.time * 1000),
        "eventId": f"{instance_id}-{seconds}",
    }


def make_template(image=IMAGE, settings=None):
    text = f"#!/bin/bash\ncat > settings.json <<'X'\n{json.dumps(settings or {'login_user': 'ubuntu'})}\nX\n"
    return {"ImageId": image, "InstanceType": "g5.12xlarge", "UserData": base64.b64encode(text.encode()).decode()}


def make_responses(status="CREATE_COMPLETE", **changes):
    """A cluster of two that formed, unless something is changed."""
    responses = AwsResponses(
        region="us-east-1",
        stack={"StackName": NAME, "StackId": ARN, "StackStatus": status, "CreationTime": BEGUN},
        resources=RESOURCES,
        events=[make_event("ClusterCoordinationFormation623FBE21", "CREATE_COMPLETE")],
        groups=[make_group("masters", "master", 1, [MASTER_ID]), make_group("workers", "worker", 1, [WORKER_ID])],
        activities={"masters": [], "workers": []},
        instances=[make_instance(WORKER_ID, "worker", "10.0.0.5"), make_instance(MASTER_ID, "master", "10.0.0.4")],
        templates={"masters": make_template(), "workers": make_template()},
        item=make_item(),
    )
    for name, value in changes.items():
        setattr(responses, name, value)
    return responses


def make_rolled_back(reason, **changes):
    """A cluster whose stack was told a failure and rolled back: groups, table and instances are gone."""
    return make_responses(
        "ROLLBACK_COMPLETE",
        events=[make_signalled_event(reason)],
        groups=[],
        instances=[],
        templates={},
        **{"item": None, **changes},
    )
