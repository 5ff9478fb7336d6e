"""What the nodes of each role may do, and nothing besides."""

from collections.abc import Sequence

from aws_cdk import Aws, Fn
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets

from deeplearning_cdk.coordination import Coordination
from deeplearning_contract.cluster_event import EventKind, name_source
from deeplearning_contract.cluster_state import list_key_patterns
from deeplearning_contract.names import CLUSTER_TAG, NodeRole


def master_statements(coordination: Coordination, cluster: str, key: kms.IKey) -> list[iam.PolicyStatement]:
    """
    Return what the master does with the meeting points, and with the groups of its cluster.

    Args:
        coordination: The meeting points.
        cluster: The cluster's name, by whose tag its groups are known.
        key: Encrypts the meeting points.
    """
    return [
        # Who ends the cluster from the master asks how large its groups are; that call takes no resource in IAM.
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
        *meeting_key_statements(key),
        event_statement(cluster, EventKind.FORMED, EventKind.DEGRADED, EventKind.FAILED, EventKind.FINISHED),
    ]


def worker_statements(coordination: Coordination, cluster: str, key: kms.IKey) -> list[iam.PolicyStatement]:
    """
    Return what a worker does with the meeting points; it can neither write the state nor ring anyone.

    Args:
        coordination: The meeting points.
        cluster: The cluster's name.
        key: Encrypts the meeting points.
    """
    return [
        _state_statement(coordination, cluster, "dynamodb:GetItem"),
        iam.PolicyStatement(actions=["sqs:ReceiveMessage"], resources=[coordination.worker_queue.queue_arn]),
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[coordination.report_queue.queue_arn]),
        *meeting_key_statements(key),
    ]


def _state_statement(coordination: Coordination, cluster: str, *actions: str) -> iam.PolicyStatement:
    """
    Return the right to the state item and its parts; the records beside them are the adjuster's alone.

    `ForAllValues` is true of a call without the key, so the key must be there, too (IAM user guide, "Multivalued
    context keys").
    """
    return iam.PolicyStatement(
        actions=list(actions),
        resources=[coordination.state_table.table_arn],
        conditions={
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": list_key_patterns(cluster)},
            "Null": {"dynamodb:LeadingKeys": "false"},
        },
    )


def meeting_key_statements(key: kms.IKey) -> list[iam.PolicyStatement]:
    """
    Return the right to use the key through DynamoDB and SQS, as whoever reads and sends there needs it.

    SQS asks for a data key when it takes a message, and decrypts that of one that it gives (SQS developer guide, "Key
    management"); DynamoDB decrypts the table's key at each read and write (DynamoDB developer guide, "Encryption at
    rest").

    Args:
        key: The key.
    """
    queues, table = (f"{service}.{Aws.REGION}.amazonaws.com" for service in ("sqs", "dynamodb"))
    return [
        iam.PolicyStatement(
            actions=["kms:Decrypt"],
            resources=[key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": [table, queues]}},
        ),
        iam.PolicyStatement(
            actions=["kms:GenerateDataKey"],
            resources=[key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": queues}},
        ),
    ]


def session_statements() -> list[iam.PolicyStatement]:
    """
    Return what the agent of Session Manager does, and nothing else of AmazonSSMManagedInstanceCore.

    Channels take no resource in IAM, but all of it knows from which instance the credentials came (Service
    Authorization Reference, "AWS Systems Manager" and "Amazon Message Gateway Service"; IAM user guide,
    `ec2:SourceInstanceArn`). That key names the caller, and none names the instance that a heartbeat is about, so that
    a node may report another's; no tag is known to that call either.
    """
    channels = [f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")]
    instances = f"arn:{Aws.PARTITION}:ec2:{Aws.REGION}:{Aws.ACCOUNT_ID}:instance/*"
    from_here = {"ArnLike": {"ec2:SourceInstanceARN": instances}}
    return [
        iam.PolicyStatement(actions=["ssm:UpdateInstanceInformation"], resources=[instances], conditions=from_here),
        iam.PolicyStatement(actions=channels, resources=["*"], conditions=from_here),
    ]


def log_statement(log_group: logs.ILogGroup, node_role: NodeRole) -> iam.PolicyStatement:
    """
    Return the right to write the streams of a role in a log group, which those of the other role are not.

    It cannot be bound to the caller's own stream: the variables that name an instance, `aws:userid` and
    `ec2:SourceInstanceARN`, have colons, which the name of a stream has not (CloudWatch Logs API, "CreateLogStream").
    """
    return iam.PolicyStatement(
        actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[stream_arns(log_group, node_role)]
    )


def stream_arns(log_group: logs.ILogGroup, node_role: NodeRole) -> str:
    """Return the pattern of the log streams of a role's nodes, which are called `<role>/<instance id>`."""
    name = f"{log_group.log_group_name}:log-stream:{node_role.value}/*"
    return f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:{name}"


def event_statement(cluster: str, *kinds: EventKind) -> iam.PolicyStatement:
    """Return the right to send these events of a cluster to the account's default event bus, and no others."""
    return iam.PolicyStatement(
        actions=["events:PutEvents"],
        resources=[f"arn:{Aws.PARTITION}:events:{Aws.REGION}:{Aws.ACCOUNT_ID}:event-bus/default"],
        conditions={
            "StringEquals": {
                "events:source": name_source(cluster),
                "events:detail-type": sorted(kind.value for kind in kinds),
            }
        },
    )


def group_arns() -> str:
    """Return the pattern of all Auto Scaling groups here; a statement with it asks for the cluster's tag."""
    return Fn.sub("arn:${AWS::Partition}:autoscaling:${AWS::Region}:${AWS::AccountId}:autoScalingGroup:*")


def read_statement(assets: Sequence[s3_assets.Asset]) -> iam.PolicyStatement:
    """Return the right to read these assets, and nothing else of their bucket."""
    return iam.PolicyStatement(
        actions=["s3:GetObject"],
        resources=[f"arn:{Aws.PARTITION}:s3:::{asset.s3_bucket_name}/{asset.s3_object_key}" for asset in assets],
    )
