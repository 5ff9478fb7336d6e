"""The deployable stack: one cluster for Horovod, MPI or torchrun, and how to log in."""

from typing import Any

from aws_cdk import CfnOutput, DefaultStackSynthesizer, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from deeplearning_cdk import LustreFileSystem, TrainingCluster
from stacks.cluster_context import VpcIds
from stacks.context import StackChoice
from stacks.job_context import take_lustre
from stacks.operation_context import take_spending


class HorovodStack(Stack):
    """
    A training cluster and its outputs.

    Args:
        scope: The parent.
        choice: What the user chose.

    Attributes:
        cluster: The cluster.
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
        places = import_places(self, choice.vpc, choice.mount_target_security_group_id) | self._import_shared(choice)
        props, lustre = take_lustre(take_spending(choice.cluster))
        if lustre:
            # In the user's VPC it can stay when the stack goes.
            kept = {"vpc": places["vpc"], "removal_policy": props.get("removal_policy")} if choice.vpc else {}
            places["lustre"] = LustreFileSystem(self, "Lustre", **lustre, **kept)
        self.cluster = TrainingCluster(self, "Cluster", **(places | props))
        CfnOutput(self, "ClusterName", value=self.cluster.cluster_name)
        CfnOutput(self, "FileSystemId", value=self.cluster.file_system.file_system_id)
        CfnOutput(self, "LogIn", value=self.cluster.session_command, description="A shell on the master")
        if self.cluster.ssh_command:
            CfnOutput(self, "LogInWithSsh", value=self.cluster.ssh_command, description="SSH to the master")
        CfnOutput(
            self, "AlarmTopic", value=self.cluster.monitoring.alarm_topic.topic_arn, description="Subscribe to it"
        )

    def _import_shared(self, choice: StackChoice) -> dict[str, Any]:
        shared: dict[str, Any] = {}
        if choice.encryption_key_arn:
            shared["encryption_key"] = kms.Key.from_key_arn(self, "EncryptionKey", choice.encryption_key_arn)
        if choice.alarm_topic_arn:
            shared["alarm_topic"] = sns.Topic.from_topic_arn(self, "AlarmTopicOfUser", choice.alarm_topic_arn)
        return shared


def import_places(scope: Construct, vpc: VpcIds | None, security_group_id: str | None) -> dict[str, Any]:
    """
    Return the props of a cluster that are the user's own VPC, subnets and security group.

    Args:
        scope: Where the imports stand.
        vpc: Ids of the user's VPC; None for a new one.
        security_group_id: Group of the file system's mount target; None without.
    """
    places: dict[str, Any] = {}
    if security_group_id:
        places["mount_target_security_group"] = ec2.SecurityGroup.from_security_group_id(
            scope, "MountTargetSecurityGroup", security_group_id
        )
    if vpc is None:
        return places
    places["availability_zone"] = vpc.availability_zone
    places["vpc"] = ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=vpc.vpc_id,
        availability_zones=[vpc.availability_zone],
        private_subnet_ids=[vpc.worker_subnet_id],
        private_subnet_route_table_ids=[vpc.worker_route_table_id] if vpc.worker_route_table_id else None,
        private_subnet_ipv4_cidr_blocks=[vpc.worker_subnet_cidr] if vpc.worker_subnet_cidr else None,
        public_subnet_ids=[vpc.master_subnet_id] if vpc.master_subnet_id else None,
    )
    if vpc.master_subnet_id:
        places["master_subnet"] = places["vpc"].public_subnets[0]
    return places
