"""Properties that this library emits: what AWS refuses of them, what it takes beside that, and its page."""

import json
from typing import Any, NamedTuple

_AWS = "https://docs.aws.amazon.com"
_NODEGROUP = f"{_AWS}/eks/latest/APIReference/API_CreateNodegroup.html"
_LIFECYCLE = f"{_AWS}/AmazonS3/latest/userguide/lifecycle-transition-general-considerations.html"
_TRUST = f"{_AWS}/IAM/latest/UserGuide/reference_policies_elements_principal.html"
_QUEUE = f"{_AWS}/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html"
_DASHBOARD = f"{_AWS}/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html"
_BACKUP = f"{_AWS}/aws-backup/latest/devguide/API_BackupRuleInput.html"
_CRON = f"{_AWS}/eventbridge/latest/userguide/eb-scheduled-rule-pattern.html"
_GROUP = f"{_AWS}/autoscaling/ec2/APIReference/API_CreateAutoScalingGroup.html"
_KEY = f"{_AWS}/kms/latest/developerguide/key-policy-default.html"
_ALARM = f"{_AWS}/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html"
_TARGETS = f"{_AWS}/eventbridge/latest/APIReference/API_Target.html"

_TOPIC = "arn:aws:sns:us-east-1:123456789012:alarms"
_DEAD = "arn:aws:sqs:us-east-1:123456789012:dead"


class Pair(NamedTuple):
    """A resource type with properties that AWS refuses, and others that it takes."""

    kind: str
    refused: dict[str, Any]
    taken: dict[str, Any]
    source: str


def _nodes(**more):
    role = "arn:aws:iam::123456789012:role/nodes"
    return {"ClusterName": "training", "NodeRole": role, "Subnets": ["subnet-0123456789abcdef0"], **more}


def _rules(**rule):
    return {"LifecycleConfiguration": {"Rules": [{"Id": "old", "Status": "Enabled", **rule}]}}


def _trust(**statement):
    service = {"Principal": {"Service": "ec2.amazonaws.com"}}
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", **service, **statement}
    return {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [statement]}}


def _dashboard(**properties):
    properties = {"region": "us-east-1", "metrics": [["AWS/EC2", "CPUUtilization"]], **properties}
    widget = {"type": "metric", "x": 0, "y": 0, "width": 12, "height": 6, "properties": properties}
    return {"DashboardBody": json.dumps({"widgets": [widget]})}


def _backup(**rule):
    rules = [{"RuleName": "daily", "TargetBackupVault": "Default", **rule}]
    return {"BackupPlan": {"BackupPlanName": "plan", "BackupPlanRule": rules}}


def _schedule(expression, **target):
    return {"ScheduleExpression": expression, "Targets": [{"Arn": _TOPIC, "Id": "topic", **target}]}


def _group(**more):
    template = {"LaunchTemplateId": "lt-0123456789abcdef0", "Version": "1"}
    sizes = {"MinSize": "0", "MaxSize": "2", "VPCZoneIdentifier": ["subnet-0123456789abcdef0"]}
    return {**sizes, "LaunchTemplate": template, **more}


def _alarm(**more):
    metric = {"Namespace": "AWS/SQS", "MetricName": "NumberOfMessagesSent", "Statistic": "Sum"}
    how = {"ComparisonOperator": "GreaterThanThreshold", "Threshold": 1, "EvaluationPeriods": 2, "Period": 60}
    return {**metric, **how, **more}


def _key(action):
    root = {"AWS": "arn:aws:iam::123456789012:root"}
    statement = {"Effect": "Allow", "Principal": root, "Action": action, "Resource": "*"}
    return {"KeyPolicy": {"Version": "2012-10-17", "Statement": [statement]}}


_IA = {"StorageClass": "STANDARD_IA", "TransitionInDays": 30}
PAIRS = {
    "an update of nodes by number and percentage": Pair(
        "AWS::EKS::Nodegroup",
        _nodes(UpdateConfig={"MaxUnavailable": 1, "MaxUnavailablePercentage": 10}),
        _nodes(UpdateConfig={"MaxUnavailable": 1}),
        _NODEGROUP,
    ),
    "an update of nodes without a setting": Pair(
        "AWS::EKS::Nodegroup",
        _nodes(UpdateConfig={}),
        _nodes(UpdateConfig={"MaxUnavailablePercentage": 10}),
        _NODEGROUP,
    ),
    "repairs in parallel by number and percentage": Pair(
        "AWS::EKS::Nodegroup",
        _nodes(NodeRepairConfig={"MaxParallelNodesRepairedCount": 1, "MaxParallelNodesRepairedPercentage": 10}),
        _nodes(NodeRepairConfig={"Enabled": True, "MaxParallelNodesRepairedCount": 1}),
        _NODEGROUP,
    ),
    "more nodes than the largest number": Pair(
        "AWS::EKS::Nodegroup",
        _nodes(ScalingConfig={"MinSize": 0, "DesiredSize": 3, "MaxSize": 2}),
        _nodes(ScalingConfig={"MinSize": 0, "DesiredSize": 2, "MaxSize": 2}),
        _NODEGROUP,
    ),
    "objects that expire when they move": Pair(
        "AWS::S3::Bucket",
        _rules(ExpirationInDays=30, Transitions=[_IA]),
        _rules(ExpirationInDays=31, Transitions=[_IA]),
        _LIFECYCLE,
    ),
    "a lifecycle rule without an action": Pair(
        "AWS::S3::Bucket", _rules(Prefix="logs/"), _rules(Prefix="logs/", ExpirationInDays=1), _LIFECYCLE
    ),
    "incomplete uploads by tag": Pair(
        "AWS::S3::Bucket",
        _rules(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}, TagFilters=[{"Key": "a", "Value": "b"}]),
        _rules(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}, Prefix="a/"),
        _LIFECYCLE,
    ),
    "a trust policy with a resource": Pair("AWS::IAM::Role", _trust(Resource="*"), _trust(Sid="Nodes"), _TRUST),
    "a trust policy for a right of S3": Pair(
        "AWS::IAM::Role", _trust(Action="s3:GetObject"), _trust(Action=["sts:AssumeRole", "sts:TagSession"]), _TRUST
    ),
    "a service that is none": Pair(
        "AWS::IAM::Role",
        _trust(Principal={"Service": "ec2.example.com"}),
        _trust(Principal={"Service": "lambda.amazonaws.com"}),
        _TRUST,
    ),
    "a dead-letter queue after no attempt": Pair(
        "AWS::SQS::Queue",
        {"RedrivePolicy": {"deadLetterTargetArn": _DEAD, "maxReceiveCount": 0}},
        {"RedrivePolicy": {"deadLetterTargetArn": _DEAD, "maxReceiveCount": 1000}},
        _QUEUE,
    ),
    "a dead-letter queue in another region": Pair(
        "AWS::SQS::Queue",
        {"RedrivePolicy": {"deadLetterTargetArn": _DEAD.replace("east", "west"), "maxReceiveCount": 3}},
        {"RedrivePolicy": {"deadLetterTargetArn": _DEAD, "maxReceiveCount": 3}},
        _QUEUE,
    ),
    "a widget's period of 45 seconds": Pair(
        "AWS::CloudWatch::Dashboard", _dashboard(period=45), _dashboard(period=120), _DASHBOARD
    ),
    "a widget's axis upside down": Pair(
        "AWS::CloudWatch::Dashboard",
        _dashboard(yAxis={"left": {"min": 9, "max": 1}}),
        _dashboard(yAxis={"left": {"min": 1, "max": 9}}),
        _DASHBOARD,
    ),
    "backups that are deleted soon after they are cold": Pair(
        "AWS::Backup::BackupPlan",
        _backup(Lifecycle={"MoveToColdStorageAfterDays": 10, "DeleteAfterDays": 99}),
        _backup(Lifecycle={"MoveToColdStorageAfterDays": 10, "DeleteAfterDays": 100}),
        _BACKUP,
    ),
    "a backup that starts within half an hour": Pair(
        "AWS::Backup::BackupPlan", _backup(StartWindowMinutes=30), _backup(StartWindowMinutes=60), _BACKUP
    ),
    "a backup that ends before it starts": Pair(
        "AWS::Backup::BackupPlan",
        _backup(StartWindowMinutes=60, CompletionWindowMinutes=100),
        _backup(StartWindowMinutes=60, CompletionWindowMinutes=120),
        _BACKUP,
    ),
    "a cron of minute 60": Pair(
        "AWS::Events::Rule", _schedule("cron(60 5 * * ? *)"), _schedule("cron(59 5 * * ? *)"), _CRON
    ),
    "a target with two inputs": Pair(
        "AWS::Events::Rule",
        _schedule("rate(5 minutes)", Input='{"a": 1}', InputPath="$.detail"),
        _schedule("rate(5 minutes)", Input='{"a": 1}'),
        _TARGETS,
    ),
    "instances that live for an hour": Pair(
        "AWS::AutoScaling::AutoScalingGroup",
        _group(MaxInstanceLifetime=3600),
        _group(MaxInstanceLifetime=86400),
        _GROUP,
    ),
    "zones by name and by id": Pair(
        "AWS::AutoScaling::AutoScalingGroup",
        _group(AvailabilityZones=["us-east-1a"], AvailabilityZoneIds=["use1-az1"]),
        _group(AvailabilityZones=["us-east-1a"]),
        _GROUP,
    ),
    "more breaches than periods": Pair(
        "AWS::CloudWatch::Alarm", _alarm(DatapointsToAlarm=3), _alarm(DatapointsToAlarm=2), _ALARM
    ),
    "an alarm that acts on a queue": Pair(
        "AWS::CloudWatch::Alarm", _alarm(AlarmActions=[_DEAD]), _alarm(AlarmActions=[_TOPIC]), _ALARM
    ),
    "a key that nobody administers": Pair("AWS::KMS::Key", _key("kms:Decrypt"), _key("kms:*"), _KEY),
}
