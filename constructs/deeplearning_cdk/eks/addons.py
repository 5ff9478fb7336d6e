"""Add-ons of a cluster on EKS, and roles of pods by Pod Identity."""

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.coordination.node_permissions import allow, ec2_arn
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID
from deeplearning_cdk.security.node_roles import attach_rights
from deeplearning_contract.names import CLUSTER_TAG

_SYSTEM = "kube-system"
_NETWORK_ACCOUNT = "aws-node"
_BEFORE_NODES = ("eks-pod-identity-agent", "kube-proxy")
_AFTER_NODES = ("coredns", "aws-efs-csi-driver", "eks-node-monitoring-agent")
_NETWORK_DESCRIBES = (
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DescribeTags",
)
_OF_INTERFACES = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateTags",
    "ec2:DeleteNetworkInterface",
    "ec2:UnassignPrivateIpAddresses",
)
_OF_ATTACHMENTS = (
    "ec2:AttachNetworkInterface",
    "ec2:DetachNetworkInterface",
    "ec2:ModifyNetworkInterfaceAttribute",
)


class EksAddons(Construct):
    """
    Add-ons in the order in which they become active, without which a stack waits for 20 minutes and fails.

    Nodes are ready only with network and identity, and DNS and drivers are active only on a node.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster.
        cluster_name: Name of the whole, the value of the tag of the instances.
        subnet: Subnet of the nodes.

    Attributes:
        before_nodes: Add-ons that are there before the nodes.
        after_nodes: Add-ons whose pods wait for a node.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, cluster: eks.CfnCluster, cluster_name: str, subnet: ec2.ISubnet
    ) -> None:
        super().__init__(scope, construct_id)
        self._cluster = cluster
        role = self.make_role("NetworkRole", _NETWORK_ACCOUNT, _SYSTEM, network_statements(subnet, cluster_name))
        network = self._add("vpc-cni", (_NETWORK_ACCOUNT, role))
        network.node.add_dependency(role)
        self.before_nodes = [network, *(self._add(name) for name in _BEFORE_NODES)]
        self.after_nodes = [self._add(name) for name in _AFTER_NODES]

    def await_node(self, group: eks.CfnNodegroup) -> None:
        """Create the add-ons whose pods wait for a node after the group that has one."""
        for addon in self.after_nodes:
            addon.node.add_dependency(group)

    def make_role(
        self, construct_id: str, account: str, namespace: str, statements: Sequence[iam.PolicyStatement]
    ) -> iam.Role:
        """
        Make a role for the pods of one service account of this cluster.

        The trust is that of the EKS user guide, "Create IAM role with trust policy required by EKS Pod Identity".
        """
        conditions = {
            "StringEquals": {
                "aws:SourceAccount": ACCOUNT_ID,
                "aws:RequestTag/kubernetes-namespace": namespace,
                "aws:RequestTag/kubernetes-service-account": account,
            },
            "ArnEquals": {"aws:SourceArn": self._cluster.attr_arn},
        }
        service = iam.ServicePrincipal("pods.eks.amazonaws.com")
        role = iam.Role(
            self,
            construct_id,
            assumed_by=iam.SessionTagsPrincipal(iam.PrincipalWithConditions(service, conditions)),
            description=f"Pods of the service account {account} of a deep-learning cluster on EKS",
        )
        attach_rights(role, statements)
        return role

    def bind(self, construct_id: str, account: str, namespace: str, role: iam.IRole) -> eks.CfnPodIdentityAssociation:
        """Give the pods of a service account a role."""
        association = eks.CfnPodIdentityAssociation(
            self,
            construct_id,
            cluster_name=self._cluster.ref,
            namespace=namespace,
            service_account=account,
            role_arn=role.role_arn,
        )
        association.node.add_dependency(role)
        return association

    def _add(self, name: str, account: tuple[str, iam.IRole] | None = None) -> eks.CfnAddon:
        association = eks.CfnAddon.PodIdentityAssociationProperty
        return eks.CfnAddon(
            self,
            "".join(word.capitalize() for word in name.split("-")),
            addon_name=name,
            cluster_name=self._cluster.ref,
            pod_identity_associations=(
                [association(service_account=account[0], role_arn=account[1].role_arn)] if account else None
            ),
            resolve_conflicts="OVERWRITE",
        )


def network_statements(subnet: ec2.ISubnet, cluster_name: str) -> list[iam.PolicyStatement]:
    """
    Return the permissions of the network plugin, which gives pods addresses of the VPC.

    The actions are those of AWS's policy AmazonEKS_CNI_Policy. Their limits have the form of the plugin's own policy
    for one cluster (aws/amazon-vpc-cni-k8s, docs/iam-policy.md), with the nodes' subnet and the tag that launch
    templates give them instead of tags that the plugin writes itself. An interface gets tags at its creation, when it
    is not documented whether `ec2:Subnet` has a value, or later.
    """
    interfaces, instances, groups = ec2_arn("network-interface"), ec2_arn("instance"), ec2_arn("security-group")
    place = ec2_arn("subnet", subnet.subnet_id)
    in_subnet = {"ArnEquals": {"ec2:Subnet": place}}
    at_creation = {"StringEquals": {"ec2:CreateAction": "CreateNetworkInterface"}}
    of_cluster = {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": cluster_name}}
    return [
        allow(["ec2:CreateNetworkInterface"], [interfaces, place, groups]),
        allow(["ec2:CreateTags"], [interfaces], at_creation),
        allow([*_OF_INTERFACES, *_OF_ATTACHMENTS], [interfaces], in_subnet),
        allow(_OF_ATTACHMENTS, [instances], of_cluster),
        allow(["ec2:ModifyNetworkInterfaceAttribute"], [groups]),
        allow(_NETWORK_DESCRIBES, ["*"]),
    ]
