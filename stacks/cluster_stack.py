"""Deployable stacks, one for each platform: a cluster, and outputs such as the commands to log in."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import CfnOutput, CfnResource, DefaultStackSynthesizer, Environment, Stack
from constructs import Construct

from deeplearning_cdk import EksTraining, EmrTraining, SageMakerTraining, TrainingCluster
from stacks.reader import read_props
from stacks.wording import word_for_context

DEFAULT_PLATFORM = "ec2"


@dataclass(frozen=True)
class StackChoice:
    """
    One stack that the user chose.

    Attributes:
        name: The stack's name.
        region: Its region; None for the CLI's.
        tags: Its tags.
        cluster: The context's keys and values of its cluster.
        platform: The service that runs the cluster, a name in `PLATFORMS`. Default: EC2.
    """

    name: str
    region: str | None
    tags: Mapping[str, str]
    cluster: Mapping[str, Any]
    platform: str = DEFAULT_PLATFORM


class ClusterStack(Stack):
    """
    Stack of a training cluster, with the outputs of every platform.

    Args:
        scope: The parent.
        choice: Choice of the user.
        description: The stack's description.

    Attributes:
        kind: Construct of the cluster, whose props are the keys of the context.
        cluster: The cluster.

    Raises:
        ValueError: A value of the context cannot work; the message names the key, the rule and a way out.
    """

    kind: type[TrainingCluster | EmrTraining | SageMakerTraining | EksTraining]

    def __init__(self, scope: Construct, choice: StackChoice, *, description: str) -> None:
        super().__init__(
            scope,
            choice.name,
            env=Environment(region=choice.region),
            tags=choice.tags,
            description=description,
            # The CLI checks the bootstrap stack's version by itself.
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        )
        try:
            self.cluster = self.kind(self, "Cluster", **read_props(self, choice.cluster, self.kind))
        except ValueError as error:
            raise ValueError(word_for_context(str(error))) from error
        CfnOutput(self, "ClusterName", value=self.cluster.cluster_name)
        CfnOutput(self, "FileSystemId", value=self.cluster.file_system.file_system_id)


class HorovodStack(ClusterStack):
    """Stack of a cluster on EC2, for Horovod, MPI or torchrun."""

    kind = TrainingCluster
    cluster: TrainingCluster

    def __init__(self, scope: Construct, choice: StackChoice) -> None:
        description = "A deep-learning training cluster: one master and its workers"
        super().__init__(scope, choice, description=description)
        CfnOutput(self, "LogIn", value=self.cluster.session_command, description="A shell on the master")
        if self.cluster.storage.lustre is not None:
            _keep_ids(self.cluster.storage.lustre)
        if self.cluster.ssh_command:
            CfnOutput(self, "LogInWithSsh", value=self.cluster.ssh_command, description="SSH to the master")
        topic = self.cluster.monitoring.alarm_topic
        CfnOutput(self, "AlarmTopic", value=topic.topic_arn, description="Subscribe to it")


class EmrStack(ClusterStack):
    """Stack of a cluster on EMR."""

    kind = EmrTraining
    cluster: EmrTraining

    def __init__(self, scope: Construct, choice: StackChoice) -> None:
        description = "A deep-learning training cluster on EMR: one primary and its core instances"
        super().__init__(scope, choice, description=description)
        CfnOutput(self, "LogIn", value=self.cluster.session_command, description="A shell on the primary")
        CfnOutput(self, "EmrClusterId", value=self.cluster.cluster.ref)
        CfnOutput(self, "LogBucket", value=self.cluster.log_bucket.bucket_name, description="Logs of EMR")
        CfnOutput(self, "AlarmTopic", value=self.cluster.alarms.topic.topic_arn, description="Subscribe to it")


class SageMakerStack(ClusterStack):
    """Stack of training jobs on SageMaker, into which nobody logs in."""

    kind = SageMakerTraining
    cluster: SageMakerTraining

    def __init__(self, scope: Construct, choice: StackChoice) -> None:
        description = "Deep-learning training jobs on SageMaker: what each of them needs"
        super().__init__(scope, choice, description=description)
        if self.cluster.notebook is not None:
            name = self.cluster.notebook.instance.attr_notebook_instance_name
            command = f"aws sagemaker create-presigned-notebook-instance-url --notebook-instance-name {name}"
            CfnOutput(self, "Notebook", value=command, description="Address of the notebook instance")
        CfnOutput(self, "ModelBucket", value=self.cluster.model_bucket.bucket_name, description="Models of jobs")
        CfnOutput(self, "AlarmTopic", value=self.cluster.alarm.topic.topic_arn, description="Subscribe to it")


class EksStack(ClusterStack):
    """Stack of a cluster on EKS, into whose nodes nobody logs in."""

    kind = EksTraining
    cluster: EksTraining

    def __init__(self, scope: Construct, choice: StackChoice) -> None:
        description = "A deep-learning training cluster on EKS: a control plane, a system node and the members"
        super().__init__(scope, choice, description=description)
        CfnOutput(self, "EksClusterName", value=self.cluster.control_plane.cluster.ref)
        CfnOutput(
            self, "UpdateKubeconfig", value=self.cluster.kubeconfig_command, description="kubectl for the cluster"
        )
        CfnOutput(self, "ScaleDown", value=self.cluster.scale_down_command, description="Ends the members")
        CfnOutput(self, "AlarmTopic", value=self.cluster.alarm.topic.topic_arn, description="Subscribe to it")


AnyStack = HorovodStack | EmrStack | SageMakerStack | EksStack

PLATFORMS: Mapping[str, type[AnyStack]] = {
    DEFAULT_PLATFORM: HorovodStack,
    "emr": EmrStack,
    "sagemaker": SageMakerStack,
    "eks": EksStack,
}
"""Stack of each platform."""


def make_stack(scope: Construct, choice: StackChoice) -> AnyStack:
    """Create the stack of the platform that the user chose."""
    return PLATFORMS[choice.platform](scope, choice)


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
