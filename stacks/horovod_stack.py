"""The deployable stack: one cluster for Horovod, torchrun or MPI, and how to log in."""

from typing import Any

from aws_cdk import CfnOutput, Stack
from constructs import Construct
from deeplearning_cdk import TrainingCluster


class HorovodStack(Stack):
    """
    A training cluster and its outputs.

    Attributes:
        cluster: The cluster.
    """

    def __init__(self, scope: Construct, construct_id: str, *, cluster: dict[str, Any], **kwargs: Any) -> None:
        """
        Make the stack.

        Args:
            scope: The parent.
            construct_id: The id in the parent.
            cluster: Props of the cluster.
            **kwargs: Props of the stack.
        """
        super().__init__(scope, construct_id, **kwargs)
        self.cluster = TrainingCluster(self, "Cluster", **cluster)
        CfnOutput(self, "ClusterName", value=self.cluster.cluster_name)
        CfnOutput(self, "FileSystemId", value=self.cluster.file_system.file_system_id)
        CfnOutput(self, "LogIn", value=self.cluster.session_command, description="A shell on the master")
        if self.cluster.ssh_command:
            CfnOutput(self, "LogInWithSsh", value=self.cluster.ssh_command, description="SSH to the master")
