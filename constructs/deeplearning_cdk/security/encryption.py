"""KMS key of a cluster, and the statements of its policy."""

from typing import Annotated

from aws_cdk import Annotations, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from deeplearning_cdk.props.check import Rule
from deeplearning_cdk.props.regions import check_environment
from deeplearning_cdk.props.rules import is_arn
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_cdk.security.acknowledged_rules import acknowledge

IMPORTED_KEY_POLICY = "deeplearning_cdk:importedKeyPolicy"

_SCALING_ROLE = "aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
_SPOT_ROLE = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
_DATA_ACTIONS = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*")
_MESSAGE_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey*")


def _is_symmetric(key: kms.IKey) -> bool:
    """Return whether a key of the app is symmetric; an imported one is taken as such."""
    made = getattr(key, "alias_target_key", key).node.default_child
    if not isinstance(made, kms.CfnKey):
        return True
    return made.key_spec in (None, "SYMMETRIC_DEFAULT") and made.key_usage in (None, "ENCRYPT_DECRYPT")


EncryptionKey = Annotated[
    kms.IKey,
    Rule(
        must="have a plain ARN",
        remedy="write arn:aws:kms:region:account:key/id",
        is_kept=lambda key: is_arn("kms", key.key_arn),
    ),
    # KMS developer guide, "Asymmetric keys in AWS KMS": services that encrypt data take symmetric keys alone.
    Rule(
        must="be a symmetric key for encryption",
        remedy="make it by kms.Key without key_spec and key_usage, since EBS, EFS and SQS take no other",
        is_kept=_is_symmetric,
    ),
]
"""KMS key of the user."""


class ClusterEncryption(Construct):
    """
    KMS key for every encryptable resource of a cluster: the user's, or a new one that is rotated every year.

    A new key is retained when the stack is deleted if `is_kept`, since encrypted data may outlive the stack; a creation
    that fails deletes it. `log_key` is the key of log groups, which outlive a rollback: the user's, or None for the key
    of CloudWatch Logs.

    With `is_for_groups`, the key's policy also admits Auto Scaling, alarms and budgets; EMR has none of them, and its
    roles use the key by their own policies.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey | None = None,
        is_kept: bool = True,
        has_spot: bool = False,
        is_for_groups: bool = True,
    ) -> None:
        super().__init__(scope, construct_id)
        if key is not None:
            check_environment("encryption_key", key, self, "region")
        self.log_key = key
        messages = [_event_statement(), _queue_statement()]
        groups = [*_scaling_statements(has_spot=has_spot), _alarm_statement()] if is_for_groups else []
        statements = [*groups, *messages]
        self.key: kms.IKey = key or kms.Key(
            self,
            "Key",
            description=f"Data of the deep-learning cluster {scope.node.path}",
            enable_key_rotation=True,
            policy=iam.PolicyDocument(statements=[_owner_statement(), *statements]),
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if is_kept else RemovalPolicy.DESTROY,
        )
        self.key_arn = self.key.key_arn
        if key is not None:
            statements.append(_log_statement())
            added = [key.add_to_resource_policy(statement).statement_added for statement in statements]
            if not all(added):
                text = _describe(statements, has_spot=has_spot) if is_for_groups else _ONLY_LOGS
                Annotations.of(self).add_warning_v2(IMPORTED_KEY_POLICY, text)
                return
        acknowledge(self.key, "wildcard-resources", findings=["*"])


def _owner_statement() -> iam.PolicyStatement:
    """Delegate access to the key to the account's IAM policies, as the CDK does by default, with any feature flags."""
    account = iam.ArnPrincipal(f"arn:{PARTITION}:iam::{ACCOUNT_ID}:root")
    return iam.PolicyStatement(principals=[account], actions=["kms:*"], resources=["*"])


def scaling_role_arn() -> str:
    """Return the ARN of the service-linked role with which Auto Scaling launches nodes and publishes events."""
    return _role_arn(_SCALING_ROLE)


def _role_arn(path: str) -> str:
    return f"arn:{PARTITION}:iam::{ACCOUNT_ID}:role/{path}"


def _scaling_statements(*, has_spot: bool) -> list[iam.PolicyStatement]:
    """
    Allow Auto Scaling to create encrypted volumes and publish to an encrypted topic.

    A condition names the role, because an account that has never used Auto Scaling does not have it yet, and KMS
    rejects a policy with a principal that does not exist (EC2 Auto Scaling user guide, "Required AWS KMS key policy for
    use with encrypted volumes"; SNS developer guide, "Enable compatibility between event sources and encrypted
    topics"). With encrypted images and snapshots, a separate role launches spot instances (EC2 user guide, "Grant
    access to customer managed keys for use with encrypted AMIs and EBS snapshots").
    """
    launchers = [scaling_role_arn(), _role_arn(_SPOT_ROLE)] if has_spot else scaling_role_arn()
    is_scaling = {"aws:PrincipalArn": launchers, "kms:CallerAccount": ACCOUNT_ID}
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


def _alarm_statement() -> iam.PolicyStatement:
    """Allow alarms and budgets to publish to encrypted topics of this account."""
    return iam.PolicyStatement(
        sid="AlarmsReachTopics",
        principals=[iam.ServicePrincipal(f"{name}.amazonaws.com") for name in ("budgets", "cloudwatch")],
        actions=list(_MESSAGE_ACTIONS),
        resources=["*"],
        conditions={"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}},
    )


def _event_statement() -> iam.PolicyStatement:
    """
    Allow events to be published to encrypted topics of this account.

    EventBridge passes no source account to KMS (SNS developer guide, "Key management"), but the encryption context of
    every use of a topic's key has the topic's ARN.
    """
    topics = f"arn:{PARTITION}:sns:{REGION}:{ACCOUNT_ID}:*"
    return iam.PolicyStatement(
        sid="EventsReachTopics",
        principals=[iam.ServicePrincipal("events.amazonaws.com")],
        actions=list(_MESSAGE_ACTIONS),
        resources=["*"],
        conditions={"ArnLike": {"kms:EncryptionContext:aws:sns:topicArn": topics}},
    )


def _queue_statement() -> iam.PolicyStatement:
    """
    Allow topics and rules to send undelivered messages to the encrypted dead-letter queues of this account.

    Both services need the key themselves (SNS developer guide, "Amazon SNS dead-letter queues"; SQS developer guide,
    "Configure KMS permissions for AWS services"). No page documents the source that EventBridge passes to KMS for
    queues, and for topics it passes none; but the encryption context of every use of a queue's key has the queue's ARN.
    """
    queues = f"arn:{PARTITION}:sqs:{REGION}:{ACCOUNT_ID}:*"
    return iam.PolicyStatement(
        sid="UndeliveredReachesQueues",
        principals=[iam.ServicePrincipal(f"{name}.amazonaws.com") for name in ("events", "sns")],
        actions=list(_MESSAGE_ACTIONS),
        resources=["*"],
        conditions={"ArnLike": {"kms:EncryptionContext:aws:sqs:arn": queues}},
    )


def _log_statement() -> iam.PolicyStatement:
    groups = f"arn:{PARTITION}:logs:{REGION}:{ACCOUNT_ID}:log-group:*"
    return iam.PolicyStatement(
        sid="LogGroupsUseTheKey",
        principals=[iam.ServicePrincipal(f"logs.{REGION}.amazonaws.com")],
        actions=list(_DATA_ACTIONS),
        resources=["*"],
        conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
    )


_ONLY_LOGS = (
    "the policy of encryption_key cannot be changed from here, since it was imported: it must let the account's IAM "
    f"policies use the key, events.amazonaws.com do {' and '.join(_MESSAGE_ACTIONS)} where "
    "kms:EncryptionContext:aws:sns:topicArn is a topic or kms:EncryptionContext:aws:sqs:arn a queue of this account, "
    "and logs.<region>.amazonaws.com do "
    f"{', '.join(_DATA_ACTIONS)} where kms:EncryptionContext:aws:logs:arn is a log group of this account; otherwise no "
    "node launches, and notifications and logs are lost"
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
