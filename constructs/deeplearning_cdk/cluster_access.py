"""What a cluster offers to the rest of an app: its node groups, grants, connections and the ways in."""

import jsii
from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.cluster_plan import ClusterPlan
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.nodes.cluster_nodes import ClusterNodes
from deeplearning_cdk.nodes.login_commands import session_command, ssh_command
from deeplearning_cdk.nodes.node_group import NodeGroup


@jsii.implements(iam.IGrantable, ec2.IConnectable)
class ClusterAccess(Construct):
    """The side of `TrainingCluster` that other constructs use."""

    cluster_name: str
    network: ClusterNetwork
    _plan: ClusterPlan
    _nodes: ClusterNodes

    @property
    def master(self) -> NodeGroup:
        """The master's node group."""
        return self._nodes.master

    @property
    def workers(self) -> NodeGroup:
        """The workers' node group."""
        return self._nodes.workers

    @property
    def connections(self) -> ec2.Connections:
        """Connections of every node."""
        return self.network.connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The roles of all nodes: `bucket.grant_read(cluster)` reaches each."""
        return self._nodes.principal

    @property
    def session_command(self) -> str:
        """The command that opens a Session Manager shell on the master."""
        return session_command(self.cluster_name, Stack.of(self).region)

    @property
    def ssh_command(self) -> str | None:
        """The command that opens an SSH session on the master; None without `ssh_peer` and `key_pair`."""
        if self._plan.ssh_peer is None or self._plan.key_name is None:
            return None
        return ssh_command(
            self.cluster_name,
            Stack.of(self).region,
            self._plan.image.login_user,
            is_public=self.network.has_public_master,
        )
