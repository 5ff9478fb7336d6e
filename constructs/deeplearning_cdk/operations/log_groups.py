"""Log groups of a cluster: kept when the stack goes, since they say why it went."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from deeplearning_cdk.security.acknowledged_rules import acknowledge


def make_log_group(scope: Construct, construct_id: str, *, key: kms.IKey | None) -> logs.LogGroup:
    """
    Make a log group that outlives the stack, also one that was rolled back, and whose lines expire after a month.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        key: The user's key; None for CloudWatch's own, because a key of the cluster's would die with the rollback that
            the lines explain.
    """
    group = logs.LogGroup(
        scope,
        construct_id,
        encryption_key=key,
        retention=logs.RetentionDays.ONE_MONTH,
        removal_policy=RemovalPolicy.RETAIN,
    )
    if key is None:
        acknowledge(group, "log-group-default-encryption")
    return group
