"""The one key of a cluster, and what its policy must say."""

from aws_cdk import Annotations, Aws, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from deeplearning_cdk.security.acknowledged_rules import acknowledge

IMPORTED_KEY_POLICY = "deeplearning_cdk:importedKeyPolicy"

_SCALING_ROLE = "aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
_SPOT_ROLE = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
_DATA_ACTIONS = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*")
_MESSAGE_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey*")


class ClusterEncryption(Construct):
    """
    The key with which everything of a cluster is encrypted that can be: the user's, or one of the cluster's own.

    An own key stays when the stack is deleted, if a new file system does, and dies with a creation that fails.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        key: The user's key. Default: one of the cluster's own, rotated every year.
        is_kept: What is encrypted with it may outlive the stack, so that an own key must. Default: it does.
        has_spot: Spot instances have volumes that are encrypted with it. Default: they have not.

    Attributes:
        key: The key.
        log_key: The key of log groups, which outlive a rollback: the user's; None for CloudWatch's own.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey | None = None,
        is_kept: bool = True,
        has_spot: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        self.log_key = key
        self.key: kms.IKey = key or kms.Key(
            self,
            "Key",
            description=f"Data of the deep-learning cluster {scope.node.path}",
            enable_key_rotation=True,
            policy=iam.PolicyDocument(statements=[_owner_statement()]),
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if is_kept else RemovalPolicy.DESTROY,
        )
        if key is None:
            acknowledge(self.key, "wildcard-resources", findings=["*"])
        statements = [
            *_scaling_statements(has_spot=has_spot),
            *_topic_statements(),
            _queue_statement(),
            *([_log_statement()] if key else []),
        ]
        results = [self.key.add_to_resource_policy(statement) for statement in statements]
        if not all(result.statement_added for result in results):
            Annotations.of(self).add_warning_v2(IMPORTED_KEY_POLICY, _describe(statements, has_spot=has_spot))
        else:
            acknowledge(self.key, "wildcard-resources", findings=["*"])


def _owner_statement() -> iam.PolicyStatement:
    """Let the account's own policies decide who uses the key; CDK's default, whatever its feature flags say of ARNs."""
    account = iam.ArnPrincipal(f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:root")
    return iam.PolicyStatement(principals=[account], actions=["kms:*"], resources=["*"])


def scaling_role_arn() -> str:
    """Return the ARN of the account's role as which Auto Scaling launches nodes and publishes events."""
    return _role_arn(_SCALING_ROLE)


def _role_arn(path: str) -> str:
    return f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/{path}"


def _scaling_statements(*, has_spot: bool) -> list[iam.PolicyStatement]:
    """
    Let Auto Scaling make encrypted volumes and publish to an encrypted topic.

    The role is named by a condition, because an account that never used Auto Scaling has none yet, and KMS refuses a
    policy that names an absent principal (EC2 Auto Scaling user guide, "Required AWS KMS key policy for use with
    encrypted volumes"; SNS developer guide, "Enable compatibility between event sources and encrypted topics").
    With encrypted images and snapshots, spot instances are launched by a role of their own (EC2 user guide, "Grant
    access to customer managed keys for use with encrypted AMIs and EBS snapshots").
    """
    launchers = [scaling_role_arn(), _role_arn(_SPOT_ROLE)] if has_spot else scaling_role_arn()
    is_scaling = {"aws:PrincipalArn": launchers, "kms:CallerAccount": Aws.ACCOUNT_ID}
    return [
        iam.PolicyStatement(
            sid="AutoScalingUsesTheKey",
            principals=[iam.AnyPrincipal()],
            actions=list(_DATA_ACTIONS),
            resources=["*"],
            conditions={"StringEquals": is_scaling},
        ),
        iam.PolicyStatement(
            sid="AutoScalingAttachesVolumes",
            principals=[iam.AnyPrincipal()],
            actions=["kms:CreateGrant"],
            resources=["*"],
            conditions={"StringEquals": is_scaling, "Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
    ]


def _topic_statements() -> list[iam.PolicyStatement]:
    """
    Let alarms, budgets and events publish to encrypted topics of this account.

    EventBridge tells KMS no source account (SNS developer guide, "Key management"), but every use of a topic's key
    names the topic.
    """
    topics = f"arn:{Aws.PARTITION}:sns:{Aws.REGION}:{Aws.ACCOUNT_ID}:*"
    return [
        iam.PolicyStatement(
            sid="AlarmsReachTopics",
            principals=[iam.ServicePrincipal(f"{name}.amazonaws.com") for name in ("budgets", "cloudwatch")],
            actions=list(_MESSAGE_ACTIONS),
            resources=["*"],
            conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
        ),
        iam.PolicyStatement(
            sid="EventsReachTopics",
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            actions=list(_MESSAGE_ACTIONS),
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:sns:topicArn": topics}},
        ),
    ]


def _queue_statement() -> iam.PolicyStatement:
    """
    Let topics and rules send what they cannot deliver to the encrypted dead letters of this account.

    Both services need the key themselves (SNS developer guide, "Amazon SNS dead-letter queues"; SQS developer guide,
    "Configure KMS permissions for AWS services"). What source EventBridge tells KMS there, no page says, and for topics
    it tells none; but SQS names the queue in every use of its key.
    """
    queues = f"arn:{Aws.PARTITION}:sqs:{Aws.REGION}:{Aws.ACCOUNT_ID}:*"
    return iam.PolicyStatement(
        sid="UndeliveredReachesQueues",
        principals=[iam.ServicePrincipal(f"{name}.amazonaws.com") for name in ("events", "sns")],
        actions=list(_MESSAGE_ACTIONS),
        resources=["*"],
        conditions={"ArnLike": {"kms:EncryptionContext:aws:sqs:arn": queues}},
    )


def _log_statement() -> iam.PolicyStatement:
    groups = f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:*"
    return iam.PolicyStatement(
        sid="LogGroupsUseTheKey",
        principals=[iam.ServicePrincipal(f"logs.{Aws.REGION}.amazonaws.com")],
        actions=list(_DATA_ACTIONS),
        resources=["*"],
        conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
    )


def _describe(statements: list[iam.PolicyStatement], *, has_spot: bool) -> str:
    roles = f"roles {_SCALING_ROLE} and {_SPOT_ROLE}" if has_spot else f"role {_SCALING_ROLE}"
    names = ", ".join(str(statement.sid) for statement in statements)
    return (
        "the policy of encryption_key cannot be changed from here, since it was imported: it must let the "
        f"{roles} of this account do {', '.join(_DATA_ACTIONS)}, and kms:CreateGrant where "
        "kms:GrantIsForAWSResource is true; let cloudwatch.amazonaws.com and budgets.amazonaws.com (with "
        "aws:SourceAccount) and events.amazonaws.com (without it; where kms:EncryptionContext:aws:sns:topicArn is a "
        f"topic of this account) do {' and '.join(_MESSAGE_ACTIONS)}; let sns.amazonaws.com and events.amazonaws.com "
        "do the same where kms:EncryptionContext:aws:sqs:arn is a queue of this account; and let "
        "logs.<region>.amazonaws.com do what the role does where kms:EncryptionContext:aws:logs:arn is a log group "
        "of this account; otherwise no node launches, and events, alarms and logs are lost "
        f"(docs/encryption.md shows the statements {names})"
    )
