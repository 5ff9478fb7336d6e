"""Control plane of a cluster on EKS: the cluster, its second zone, its logs, and who may use its API."""

import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Any

from aws_cdk import Fn, Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.coordination.messages import make_log_group
from deeplearning_cdk.coordination.node_permissions import allow, ec2_arn
from deeplearning_cdk.network.cluster_network import DEFAULT_CIDR, ClusterNetwork
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.props.check import show_value
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_cdk.security.encryption import ClusterEncryption
from deeplearning_cdk.security.node_roles import attach_rights

_Cluster = eks.CfnCluster
_LOGS = ("api", "audit", "authenticator", "controllerManager", "scheduler")
_EDIT, _ADMINISTER = "AmazonEKSEditPolicy", "AmazonEKSClusterAdminPolicy"
_LONGEST_NAME = 100
"""EKS API reference, CreateCluster."""
_SUFFIX = 9
"""Length of what is added to the name of a cluster, which the stack's name decides."""
_DESCRIBES = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeInstanceTopology",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeVpcs",
)


class ControlPlane(Construct):
    """
    Cluster of EKS, which only principals with an access entry use, by an endpoint in the VPC.

    Its log group exists first, because EKS would make one that keeps logs forever. The group outlives the stack, so the
    cluster's name contains a part of the stack's id, which is another one in each creation.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster_name: Name of the whole, with which the cluster's begins.
        version: Version of Kubernetes.
        network: Network of the nodes.
        choice: The user's choice of it.
        api_from: Networks from which the API is reached over the Internet; none for the VPC alone.
        encryption: Key of the secrets.

    Attributes:
        name: Name of the cluster.
        cluster: The cluster.
        role: Its role.

    Raises:
        ValueError: The name is too long, or the VPC has one zone.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        version: str,
        network: ClusterNetwork,
        choice: Network,
        api_from: Sequence[str],
        encryption: ClusterEncryption,
    ) -> None:
        super().__init__(scope, construct_id)
        self.name = _name(self, cluster_name)
        subnets = [network.worker_subnet.subnet_id, _choose_second_subnet(self, network, choice)]
        logs = make_log_group(self, "Logs", key=encryption.log_key, name=f"/aws/eks/{self.name}/cluster")
        self.role = self._make_role(encryption.key_arn)
        self.cluster = self.node.default_child = _Cluster(
            self,
            "Cluster",
            name=self.name,
            version=version,
            role_arn=self.role.role_arn,
            resources_vpc_config=_Cluster.ResourcesVpcConfigProperty(
                subnet_ids=subnets,
                endpoint_private_access=True,
                endpoint_public_access=bool(api_from),
                public_access_cidrs=list(api_from) or None,
            ),
            access_config=_Cluster.AccessConfigProperty(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
            ),
            # Each add-on is a resource of the stack.
            bootstrap_self_managed_addons=False,
            encryption_config=[
                _Cluster.EncryptionConfigProperty(
                    provider=_Cluster.ProviderProperty(key_arn=encryption.key_arn), resources=["secrets"]
                )
            ],
            logging=_Cluster.LoggingProperty(
                cluster_logging=_Cluster.ClusterLoggingProperty(
                    enabled_types=[_Cluster.LoggingTypeConfigProperty(type=each) for each in _LOGS]
                )
            ),
            # Extended support costs more by the hour.
            upgrade_policy=_Cluster.UpgradePolicyProperty(support_type="STANDARD"),
        )
        self.cluster.node.add_dependency(logs, self.role, network.connectivity)

    def admit_administrator(self, principal_arn: str) -> None:
        """Let a principal change everything in the cluster."""
        self._admit("Administrator", principal_arn, principal_arn, _ADMINISTER, None)

    def admit_submitter(self, grantee: iam.IGrantable, namespace: str) -> None:
        """
        Let a role or a user change jobs and their objects in a namespace.

        Raises:
            ValueError: The grantee has no ARN of its own, such as a policy or a group.
        """
        principal: Any = grantee.grant_principal
        arn = getattr(principal, "role_arn", None) or getattr(principal, "user_arn", None)
        if arn is None:
            raise ValueError(
                f"grantee must be an IAM role or user on EKS, got {show_value(grantee)}; EKS admits no policy and no "
                "group, so pass each role"
            )
        self._admit("Submitter", principal.node.path, arn, _EDIT, namespace)

    def _admit(self, kind: str, path: str, arn: str, policy: str, namespace: str | None) -> None:
        construct_id = kind + hashlib.sha256(path.encode()).hexdigest()[:8]
        if self.node.try_find_child(construct_id) is not None:
            return
        scope = eks.CfnAccessEntry.AccessScopeProperty(
            type="namespace" if namespace else "cluster", namespaces=[namespace] if namespace else None
        )
        eks.CfnAccessEntry(
            self,
            construct_id,
            cluster_name=self.cluster.ref,
            principal_arn=arn,
            type="STANDARD",
            access_policies=[
                eks.CfnAccessEntry.AccessPolicyProperty(
                    policy_arn=f"arn:{PARTITION}:eks::aws:cluster-access-policy/{policy}", access_scope=scope
                )
            ],
        )

    def _make_role(self, key_arn: str) -> iam.Role:
        """
        Make the role of the cluster, for this cluster alone.

        The permissions are the least of the EKS user guide, "Amazon EKS cluster IAM role": the control plane reads and
        tags nodes, and makes no load balancers. The condition is that of "Cross-service confused deputy prevention".
        """
        this = f"arn:{PARTITION}:eks:{REGION}:{ACCOUNT_ID}:cluster/{self.name}"
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("eks.amazonaws.com", conditions={"ArnLike": {"aws:SourceArn": this}}),
            description="Control plane of a deep-learning cluster on EKS",
        )
        has_tags = {"ForAnyValue:StringLike": {"aws:TagKeys": "kubernetes.io/cluster/*"}}
        attach_rights(
            role,
            [
                allow(["ec2:CreateTags"], [ec2_arn("instance")], has_tags),
                allow(_DESCRIBES, ["*"]),
                allow(["kms:DescribeKey"], [key_arn]),
            ],
        )
        return role


def _name(scope: Construct, cluster_name: str) -> str:
    """Return a name of the cluster that no earlier creation of the stack had: with 8 digits of the stack's id."""
    if not Token.is_unresolved(cluster_name) and len(cluster_name) > _LONGEST_NAME - _SUFFIX:
        raise ValueError(
            f"stack_name must leave the name of the cluster at most {_LONGEST_NAME} characters on EKS, got "
            f"{len(cluster_name) + _SUFFIX} with {cluster_name}; shorten it"
        )
    unique = Fn.select(2, Fn.split("/", Stack.of(scope).stack_id))
    return f"{cluster_name}-{Fn.select(0, Fn.split('-', unique))}"


def _choose_second_subnet(scope: Construct, network: ClusterNetwork, choice: Network) -> str:
    """
    Return a subnet in a second zone, in which EKS wants an interface of the control plane; no node is there.

    In a new VPC it is the last /28 of its range, which has no route but the VPC's own.
    """
    if network.is_new:
        last = [*ipaddress.IPv4Network(choice.cidr or DEFAULT_CIDR).subnets(new_prefix=28)][-1]
        # The list of zones is sorted; its first is that of the nodes, unless the user names another.
        zone = choice.availability_zone
        position = 1 if zone is None or Token.is_unresolved(zone) or zone.endswith("a") else 0
        subnet = ec2.CfnSubnet(
            scope,
            "SecondZone",
            vpc_id=network.vpc.vpc_id,
            cidr_block=str(last),
            availability_zone=Fn.select(position, Fn.get_azs()),
            map_public_ip_on_launch=False,
        )
        return subnet.ref
    resolve = Stack.of(scope).resolve
    private = [*network.vpc.private_subnets, *network.vpc.isolated_subnets]
    others = [each for each in private if resolve(each.availability_zone) != resolve(network.zone)]
    if not others:
        raise ValueError(
            "network.vpc must have a private subnet in a second zone on EKS, got none beside "
            f"{show_value(network.zone)}; EKS puts an interface of the control plane there, so add one of at least 16 "
            "addresses"
        )
    return others[0].subnet_id
