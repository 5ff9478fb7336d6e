"""The one key of a cluster."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from constructs import Construct


class ClusterEncryption(Construct):
    """
    The key with which everything of a cluster is encrypted that can be: the user's, or one of the cluster's own.

    An own key stays when the stack is deleted, because the file system stays, and dies with a creation that fails.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        key: The user's key. Default: one of the cluster's own, rotated every year.

    Attributes:
        key: The key.
        log_key: The key of log groups, which outlive a rollback: the user's; None for CloudWatch's own.
    """

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey | None = None) -> None:
        super().__init__(scope, construct_id)
        self.log_key = key
        self.key: kms.IKey = key or kms.Key(
            self,
            "Key",
            description=f"Data of the deep-learning cluster {scope.node.path}",
            enable_key_rotation=True,
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )
