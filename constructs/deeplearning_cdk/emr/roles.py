"""
IAM roles of an EMR cluster: the service's, and that of its instances, each with few exact actions.

EMR's own policies for both are wider: `AmazonEMRServicePolicy_v2` also creates fleets, launch templates, placement
groups, endpoints, alarms and security groups, and `AmazonElasticMapReduceforEC2Role` has S3, DynamoDB and SQS whole.
"""

from collections.abc import Iterable, Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deeplearning_cdk.coordination.node_permissions import allow, ec2_arn, security_group_arns
from deeplearning_cdk.emr.site import EmrSecurityGroups
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_cdk.security.node_roles import attach_rights
from deeplearning_contract.names import CLUSTER_TAG

_DESCRIBES = (
    "ec2:DescribeAccountAttributes",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkAcls",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVolumeStatus",
    "ec2:DescribeVolumes",
    "ec2:DescribeVpcEndpoints",
    "ec2:DescribeVpcs",
)
"""
Calls that take no resource in IAM, of both of AWS's policies for the role, without those for fleets and spot instances.

`AmazonElasticMapReduceRole`, the older policy, goes on working for every cluster (EMR management guide, "Amazon EMR
managed policies"), so EMR needs no call that it lacks.
"""
_VOLUME_KEY_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo")


class EmrRoles(Construct):
    """
    Roles of an EMR cluster.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        service_statements: Permissions of EMR, without that to pass the instances' role.
        instance_statements: Permissions of the instances.

    Attributes:
        service: Role of EMR.
        instance: Role of the instances, each of which can be the primary.
        profile_name: Name of their instance profile.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service_statements: Iterable[iam.PolicyStatement],
        instance_statements: Iterable[iam.PolicyStatement],
    ) -> None:
        super().__init__(scope, construct_id)
        self.instance = iam.Role(
            self,
            "Instance",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Instances of a deep-learning cluster on EMR",
        )
        attach_rights(self.instance, list(instance_statements))
        # EMR looks the role up by the name of the profile: with another name, no cluster is created (EMR management
        # guide, "Customize IAM roles").
        profile = iam.CfnInstanceProfile(
            self, "Profile", roles=[self.instance.role_name], instance_profile_name=self.instance.role_name
        )
        self.profile_name = profile.ref
        # Against use by other accounts' clusters (EMR management guide, "Service role for Amazon EMR").
        clusters = f"arn:{PARTITION}:elasticmapreduce:{REGION}:{ACCOUNT_ID}:*"
        self.service = iam.Role(
            self,
            "Service",
            assumed_by=iam.ServicePrincipal(
                "elasticmapreduce.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": ACCOUNT_ID},
                    "ArnLike": {"aws:SourceArn": clusters},
                },
            ),
            description="EMR, for a deep-learning cluster",
        )
        pass_role = iam.PolicyStatement(
            actions=["iam:PassRole"],
            resources=[self.instance.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        )
        attach_rights(self.service, [*service_statements, pass_role])


def service_statements(
    cluster: str,
    network: ClusterNetwork,
    managed: EmrSecurityGroups,
    others: Sequence[ec2.ISecurityGroup],
    key_arn: str,
) -> list[iam.PolicyStatement]:
    """
    Return the permissions of EMR for one cluster of uniform instance groups in a private subnet.

    Those of EC2 are of AmazonEMRServicePolicy_v2, version 6, as far as such a cluster uses it. EMR gives its instances,
    volumes and its own interface in the private subnet the cluster's tags (EMR management guide, "Tagging resources to
    use managed policies"), so the tag of this cluster stands in place of AWS's
    `for-use-with-amazon-emr-managed-policies`, and subnet and groups are named. Fleets alone need launch templates.

    The group of the interface gets no inbound rule from EMR, which refuses a cluster where the rule is missing.

    Args:
        cluster: The cluster's name.
        network: Network of the instances.
        managed: Security groups whose rules EMR manages.
        others: Other security groups of the instances.
        key_arn: Key of the volumes. The caller of RunInstances needs it (EBS user guide, "Requirements for Amazon EBS
            encryption").
    """
    launched = [ec2_arn(kind) for kind in ("instance", "volume")]
    interfaces, subnet = ec2_arn("network-interface"), ec2_arn("subnet", network.worker_subnet.subnet_id)
    members, service = security_group_arns([managed.primary, managed.core]), security_group_arns([managed.service])
    is_new = {"StringEquals": {f"aws:RequestTag/{CLUSTER_TAG}": cluster}}
    is_ours = {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": cluster}}
    by_ec2 = {"StringEquals": {"kms:ViaService": f"ec2.{REGION}.amazonaws.com"}}
    images = f"arn:{PARTITION}:ec2:{REGION}::image/ami-*"
    return [
        allow(["ec2:RunInstances"], [images, subnet, interfaces, *members, *security_group_arns(others)]),
        allow(["ec2:RunInstances"], launched, is_new),
        allow(["ec2:CreateNetworkInterface"], [subnet, *service]),
        allow(["ec2:CreateNetworkInterface"], [interfaces], is_new),
        # Whether EMR tags the interfaces of instances, its guide leaves open.
        allow(["ec2:CreateTags"], [*launched, interfaces], _at_creation("RunInstances")),
        allow(["ec2:CreateTags"], [interfaces], _at_creation("CreateNetworkInterface")),
        allow(["ec2:CreateTags", "ec2:DeleteTags"], [*launched, interfaces], is_ours),
        allow(["ec2:ModifyInstanceAttribute", "ec2:TerminateInstances"], [ec2_arn("instance")], is_ours),
        allow(["ec2:DeleteNetworkInterface"], [interfaces], is_ours),
        allow(["ec2:AuthorizeSecurityGroupIngress"], members),
        allow(["ec2:AuthorizeSecurityGroupEgress"], [*members, *service]),
        allow(["ec2:DescribeVpcAttribute"], [ec2_arn("vpc", network.vpc.vpc_id)]),
        allow(_DESCRIBES, ["*"]),
        allow(["kms:DescribeKey"], [key_arn]),
        allow(_VOLUME_KEY_ACTIONS, [key_arn], by_ec2),
        allow(["kms:CreateGrant"], [key_arn], {"Bool": {"kms:GrantIsForAWSResource": "true"}}),
    ]


def instance_log_statements(bucket: s3.IBucket, prefix: str, key_arn: str) -> list[iam.PolicyStatement]:
    """
    Return the instances' permissions to write logs, and to encrypt logs and their instance stores.

    Each instance requests the passphrase of its instance stores from the key, and has it decrypted after a reboot (KMS
    developer guide, "How Amazon EMR uses AWS KMS"). S3 uses the key for logs, and decrypts it for parts of a large one.
    """
    return [
        allow(["s3:PutObject"], [bucket.arn_for_objects(f"{prefix}*")]),
        allow(["kms:Decrypt", "kms:GenerateDataKey"], [key_arn]),
    ]


def _at_creation(action: str) -> dict[str, dict[str, str]]:
    return {"StringEquals": {"ec2:CreateAction": action}}
