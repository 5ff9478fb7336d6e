"""Permissions of the nodes of each role."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aws_cdk import Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets

from deeplearning_cdk.coordination.coordination import Coordination
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_contract.cluster_event import EventKind, name_source
from deeplearning_contract.cluster_state import list_key_patterns
from deeplearning_contract.names import CLUSTER_TAG, NodeRole

_MASTER_EVENTS = (
    EventKind.FORMED,
    EventKind.DEGRADED,
    EventKind.FAILED,
    EventKind.FINISHED,
    EventKind.JOB_FAILED,
)


def master_statements(coordination: Coordination, cluster: str, key_arn: str) -> list[iam.PolicyStatement]:
    """Return the master's permissions for queues, state table and events, and for the groups with the cluster's tag."""
    return [
        # `deeplearning end` on the master reads the size of its groups; that call takes no resource in IAM.
        iam.PolicyStatement(actions=["autoscaling:DescribeAutoScalingGroups"], resources=["*"]),
        iam.PolicyStatement(
            actions=["autoscaling:SetDesiredCapacity", "autoscaling:SetInstanceHealth"],
            resources=[group_arns()],
            conditions={"StringEquals": {f"autoscaling:ResourceTag/{CLUSTER_TAG}": cluster}},
        ),
        _state_statement(coordination, cluster, "dynamodb:GetItem", "dynamodb:PutItem"),
        iam.PolicyStatement(
            actions=["sqs:DeleteMessage", "sqs:ReceiveMessage"],
            resources=[coordination.master_queue.queue_arn, coordination.report_queue.queue_arn],
        ),
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[coordination.worker_queue.queue_arn]),
        *coordination_key_statements(key_arn),
        event_statement(cluster, *_MASTER_EVENTS),
    ]


def worker_statements(coordination: Coordination, cluster: str, key_arn: str) -> list[iam.PolicyStatement]:
    """Return a worker's permissions; it can neither write the state nor notify other nodes."""
    return [
        _state_statement(coordination, cluster, "dynamodb:GetItem"),
        iam.PolicyStatement(actions=["sqs:ReceiveMessage"], resources=[coordination.worker_queue.queue_arn]),
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[coordination.report_queue.queue_arn]),
        *coordination_key_statements(key_arn),
    ]


def _state_statement(coordination: Coordination, cluster: str, *actions: str) -> iam.PolicyStatement:
    """
    Return the permission for the state item and its parts; the records beside them are only for the adjuster.

    `ForAllValues` matches a call without the key, so the key must be present too (IAM user guide, "Multivalued context
    keys").
    """
    return iam.PolicyStatement(
        actions=list(actions),
        resources=[coordination.state_table.table_arn],
        conditions={
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": list_key_patterns(cluster)},
            "Null": {"dynamodb:LeadingKeys": "false"},
        },
    )


def coordination_key_statements(key_arn: str) -> list[iam.PolicyStatement]:
    """
    Return the permission to use the key through DynamoDB and SQS, for callers of either.

    SQS generates a data key when it receives a message, and decrypts that of a message that it delivers (SQS developer
    guide, "Key management"); DynamoDB decrypts the table's key at each read and write (DynamoDB developer guide,
    "Encryption at rest").
    """
    queues, table = (f"{service}.{REGION}.amazonaws.com" for service in ("sqs", "dynamodb"))
    return [
        iam.PolicyStatement(
            actions=["kms:Decrypt"],
            resources=[key_arn],
            conditions={"StringEquals": {"kms:ViaService": [table, queues]}},
        ),
        iam.PolicyStatement(
            actions=["kms:GenerateDataKey"],
            resources=[key_arn],
            conditions={"StringEquals": {"kms:ViaService": queues}},
        ),
    ]


def session_statements() -> list[iam.PolicyStatement]:
    """
    Return the permissions of the agent of Session Manager, without the rest of AmazonSSMManagedInstanceCore.

    Channels take no resource in IAM, but all these calls support the condition key of the instance whose credentials
    are used (Service Authorization Reference, "AWS Systems Manager" and "Amazon Message Gateway Service"; IAM user
    guide, `ec2:SourceInstanceArn`). That key identifies the caller. No key or tag identifies the instance of a
    heartbeat, so a node can send the heartbeat of another.
    """
    channels = [f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")]
    instances = f"arn:{PARTITION}:ec2:{REGION}:{ACCOUNT_ID}:instance/*"
    from_here = {"ArnLike": {"ec2:SourceInstanceARN": instances}}
    return [
        iam.PolicyStatement(actions=["ssm:UpdateInstanceInformation"], resources=[instances], conditions=from_here),
        iam.PolicyStatement(actions=channels, resources=["*"], conditions=from_here),
    ]


def log_statement(log_group: logs.ILogGroup, node_role: NodeRole) -> iam.PolicyStatement:
    """
    Return the permission to write the log streams of a role, and not those of the other role.

    It cannot be limited to the caller's own stream: the variables that name an instance, `aws:userid` and
    `ec2:SourceInstanceARN`, contain colons, which the name of a stream cannot (CloudWatch Logs API, "CreateLogStream").
    """
    return iam.PolicyStatement(
        actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[stream_arns(log_group, node_role)]
    )


def stream_arns(log_group: logs.ILogGroup, node_role: NodeRole) -> str:
    """Return the pattern of the log streams of a role's nodes, whose names are `<role>/<instance id>`."""
    name = f"{log_group.log_group_name}:log-stream:{node_role.value}/*"
    return f"arn:{PARTITION}:logs:{REGION}:{ACCOUNT_ID}:log-group:{name}"


def event_statement(cluster: str, *kinds: EventKind) -> iam.PolicyStatement:
    """
    Return the permission to send only these events of a cluster to the account's default event bus.

    A call sends up to ten events. Whether the keys then have the values of all of them, or the call is decided event by
    event, is not documented (EventBridge user guide, "Using IAM policy conditions"). `ForAllValues` refuses a foreign
    event in both cases; the keys must be present, because it matches a call without them.
    """
    return iam.PolicyStatement(
        actions=["events:PutEvents"],
        resources=[f"arn:{PARTITION}:events:{REGION}:{ACCOUNT_ID}:event-bus/default"],
        conditions={
            "ForAllValues:StringEquals": {
                "events:source": name_source(cluster),
                "events:detail-type": sorted(kind.value for kind in kinds),
            },
            "Null": {"events:source": "false", "events:detail-type": "false"},
        },
    )


def group_arns() -> str:
    """Return the pattern of all Auto Scaling groups of account and region; limit it by the cluster's tag."""
    return Fn.sub("arn:${AWS::Partition}:autoscaling:${AWS::Region}:${AWS::AccountId}:autoScalingGroup:*")


def read_statement(assets: Sequence[s3_assets.Asset]) -> iam.PolicyStatement:
    """Return the permission to read these assets, and nothing else in their bucket."""
    return iam.PolicyStatement(
        actions=["s3:GetObject"],
        resources=[object_arn(asset.s3_bucket_name, asset.s3_object_key) for asset in assets],
    )


_ECR_IMAGE = re.compile(
    r"(?P<account>[0-9]{12})\.dkr[.-]ecr(-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z.]+/(?P<name>[a-z0-9._/-]+)"
)
"""Image in Amazon ECR by either address of its registry (Amazon ECR user guide, "Amazon ECR endpoints")."""


def pull_statements(image: str) -> list[iam.PolicyStatement]:
    """
    Return the permissions to pull a container image from ECR; none for another registry.

    An image whose name is known at deployment only, such as that of an asset, is granted by its repository:
    `asset.repository.grant_pull(cluster)`.
    """
    found = _ECR_IMAGE.match(image)
    if found is None:
        return []
    return pull_from_statements(f"arn:{PARTITION}:ecr:{found['region']}:{found['account']}:repository/{found['name']}")


def pull_from_statements(repository: str) -> list[iam.PolicyStatement]:
    """Return the permissions to pull images of a repository in ECR, by its ARN."""
    return [
        iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"]),
        iam.PolicyStatement(
            actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=[repository],
        ),
    ]


def allow(
    actions: Sequence[str], resources: Sequence[str], conditions: Mapping[str, Mapping[str, Any]] | None = None
) -> iam.PolicyStatement:
    """Return the permission for actions on resources, under conditions."""
    return iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=conditions)


def ec2_arn(kind: str, name: str = "*") -> str:
    """Return the ARN of a resource of EC2 in account and region, or the pattern of all of its kind."""
    return f"arn:{PARTITION}:ec2:{REGION}:{ACCOUNT_ID}:{kind}/{name}"


def security_group_arns(groups: Iterable[ec2.ISecurityGroup]) -> list[str]:
    """Return the ARNs of security groups."""
    return [ec2_arn("security-group", group.security_group_id) for group in groups]


def object_arn(bucket: str, key: str) -> str:
    """Return the ARN of an object, or the pattern of objects for a key that ends with `*`."""
    return f"arn:{PARTITION}:s3:::{bucket}/{key}"
