"""Deployable stack: one cluster for Horovod, MPI or torchrun, and the commands to log in."""

import hashlib
import re

from aws_cdk import CfnOutput, CfnResource, DefaultStackSynthesizer, Environment, Stack
from constructs import Construct

from deeplearning_cdk import TrainingCluster
from stacks.context import StackChoice
from stacks.reader import read_props


class HorovodStack(Stack):
    """
    Stack of a training cluster, with its outputs.

    Args:
        scope: The parent.
        choice: Choice of the user.

    Attributes:
        cluster: The cluster.

    Raises:
        ValueError: A value of the context cannot work; the message names the key, the rule and a way out.
    """

    def __init__(self, scope: Construct, choice: StackChoice) -> None:
        super().__init__(
            scope,
            choice.name,
            env=Environment(region=choice.region),
            tags=choice.tags,
            description="A deep-learning training cluster: one master and its workers",
            # The CLI checks the bootstrap stack's version by itself.
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        )
        self.cluster = TrainingCluster(self, "Cluster", **read_props(self, choice.cluster))
        if self.cluster.storage.lustre is not None:
            _keep_ids(self.cluster.storage.lustre)
        CfnOutput(self, "ClusterName", value=self.cluster.cluster_name)
        CfnOutput(self, "FileSystemId", value=self.cluster.file_system.file_system_id)
        CfnOutput(self, "LogIn", value=self.cluster.session_command, description="A shell on the master")
        if self.cluster.ssh_command:
            CfnOutput(self, "LogInWithSsh", value=self.cluster.ssh_command, description="SSH to the master")
        CfnOutput(
            self, "AlarmTopic", value=self.cluster.monitoring.alarm_topic.topic_arn, description="Subscribe to it"
        )


def _keep_ids(lustre: Construct) -> None:
    """
    Keep the logical ids of FSx for Lustre from releases in which it was outside the cluster; others would replace it.

    A logical id is the path below the stack and eight digits of its MD5 (aws-cdk-lib 2.275.0, uniqueid.ts of core).
    """
    for resource in lustre.node.find_all():
        if isinstance(resource, CfnResource):
            path = resource.node.path.split("/")[2:]
            digest = hashlib.md5("/".join(path).encode(), usedforsecurity=False).hexdigest()[:8].upper()
            name = "".join(re.sub("[^A-Za-z0-9]", "", part) for part in path if part != "Resource")
            resource.override_logical_id(name + digest)
