"""Managed node groups of a cluster on EKS: one node for the system's pods, and the members."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.capacity.purchase import ON_DEMAND, Purchase
from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.coordination.node_permissions import allow
from deeplearning_cdk.eks.node_images import NodeImageKind, make_user_data, name_ami_type
from deeplearning_cdk.eks.plan import EksPlan
from deeplearning_cdk.network.interfaces import plan_interfaces
from deeplearning_cdk.props.rules import count_gibibytes
from deeplearning_cdk.pseudo_parameters import PARTITION, REGION
from deeplearning_cdk.security.node_roles import attach_rights
from deeplearning_contract.jobs.kubernetes_cluster import EFA_PLUGIN, EFA_PLUGIN_ACCOUNT, EFA_PLUGIN_REGION
from deeplearning_contract.names import CLUSTER_TAG

_Template = ec2.CfnLaunchTemplate
_Group = eks.CfnNodegroup
LABEL_KEY, LABEL_VALUE = "deeplearning/member", "true"
"""Label of the members' nodes."""
_TAINT = "nvidia.com/gpu"
"""Taint of nodes with GPUs, so that the system's pods do not wait for expensive nodes."""
_CAPACITY_TYPES = {"spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}
_SYSTEM_GIBIBYTES = 50
_ROOT_GIBIBYTES = 8
"""Root disk of Bottlerocket, which has images on a disk of their own."""
_IMAGE_DISK_MIBPS = 500
"""
Throughput of the disk for images in MiB/s, on which data of jobs are too where a type has no disks of its own.

The 3,000 IOPS that each gp3 disk has allow for 750 (EBS user guide, "General Purpose SSD volumes").
"""
_METADATA = _Template.MetadataOptionsProperty(
    # Pods are a hop away, and must not have the node's role.
    http_tokens="required",
    http_put_response_hop_limit=1,
)


@dataclass(frozen=True)
class _Kind:
    """Nodes of one group."""

    name: str
    facts: InstanceTypeFacts
    count: int
    initial: int
    node_image: NodeImageKind
    disk: Size | int
    purchase: Purchase = ON_DEMAND
    placement_group: str | None = None
    throughput: int | None = None
    update_strategy: str = "DEFAULT"


class EksNodes(Construct):
    """
    Node groups `System`, of one node, and `Members`, with EFA and a placement group where the type has them.

    A changed launch template recycles all nodes of its group, so nothing in it depends on the number of nodes. An
    update of the members ends a node before it launches its successor, because capacity of their type is scarce (EKS
    API reference, UpdateConfig). A group has no version: its nodes keep theirs when that of the cluster changes (EKS
    API reference, UpdateNodegroupVersion).

    A launch template of a managed node group has neither a subnet nor a role, and an instance type only for a Capacity
    Block (EKS user guide, "Customize managed nodes with launch templates" and "Create a managed node group with
    Capacity Blocks for ML").

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster.
        cluster_name: Name of the whole, the value of the tag of the instances.
        plan: Types, images and purchase option.
        subnet: Subnet of all nodes.
        groups: Security groups of all nodes, beside that of EKS.
        key_arn: Key of the disks.
        statements: Further permissions of the nodes.

    Attributes:
        role: Role of all nodes.
        system: Group of the node for the system's pods.
        members: Group of the members.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: eks.CfnCluster,
        cluster_name: str,
        plan: EksPlan,
        subnet: ec2.ISubnet,
        groups: Sequence[ec2.ISecurityGroup],
        key_arn: str,
        statements: Sequence[iam.PolicyStatement],
    ) -> None:
        super().__init__(scope, construct_id)
        self._cluster, self._cluster_name, self._key_arn, self._subnet = cluster, cluster_name, key_arn, subnet
        self._groups = [cluster.attr_cluster_security_group_id, *(group.security_group_id for group in groups)]
        self.role = self._make_role(plan, statements)
        self.system = self._make_system(plan)
        self.members = self._make_members(plan)
        for group in (self.system, self.members):
            group.node.add_dependency(self.role)

    def _make_role(self, plan: EksPlan, statements: Sequence[iam.PolicyStatement]) -> iam.Role:
        """
        Make the role of the nodes, with what AWS's policies AmazonEKSWorkerNodePolicy and PullOnly are used for here.

        Nodes pull the images of add-ons from registries of AWS's accounts in their region, whose policies admit them
        (EKS user guide, "Amazon EKS node IAM role" and "View Amazon container image registries for Amazon EKS
        add-ons"). The plugin of EFA is in one registry for all regions.
        """
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Nodes of a deep-learning cluster on EKS",
        )
        pull = ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        images = [f"arn:{PARTITION}:ecr:{REGION}:*:repository/*"]
        if plan.efa_count:
            images.append(f"arn:{PARTITION}:ecr:{EFA_PLUGIN_REGION}:{EFA_PLUGIN_ACCOUNT}:repository/{EFA_PLUGIN}")
        attach_rights(
            role,
            [
                allow(["ec2:DescribeInstanceTypes", "ec2:DescribeInstances", "ecr:GetAuthorizationToken"], ["*"]),
                allow(["eks:DescribeCluster", "eks-auth:AssumeRoleForPodIdentity"], [self._cluster.attr_arn]),
                allow(pull, images),
                *statements,
            ],
        )
        return role

    def _make_system(self, plan: EksPlan) -> _Group:
        return self._make_group(_Kind("System", plan.system, 1, 1, plan.node_image, _SYSTEM_GIBIBYTES))

    def _make_members(self, plan: EksPlan) -> _Group:
        place = (
            ec2.CfnPlacementGroup(self, "Placement", strategy="cluster").ref
            if plan.is_placed
            else plan.purchase.placement_group or None
        )
        kind = _Kind(
            "Members",
            plan.facts,
            plan.members,
            plan.initial_members,
            plan.node_image,
            plan.image_disk,
            plan.purchase,
            place,
            throughput=None if plan.facts.has_local_disk else _IMAGE_DISK_MIBPS,
            update_strategy="MINIMAL",
        )
        group = self._make_group(kind)
        group.labels = {LABEL_KEY: LABEL_VALUE}
        if plan.facts.accelerator is not None:
            group.taints = [_Group.TaintProperty(key=_TAINT, value="present", effect="NO_SCHEDULE")]
        return group

    def _make_template(self, kind: _Kind) -> _Template:
        purchase, place = kind.purchase, kind.placement_group
        resources = ("instance", "volume", "network-interface")
        tags = [{"key": CLUSTER_TAG, "value": self._cluster_name}]
        target = _Template.CapacityReservationTargetProperty(capacity_reservation_id=purchase.reservation_id)
        data = _Template.LaunchTemplateDataProperty(
            block_device_mappings=self._describe_disks(kind),
            capacity_reservation_specification=(
                _Template.CapacityReservationSpecificationProperty(capacity_reservation_target=target)
                if purchase.is_reserved
                else None
            ),
            # A group asks for spot instances itself, and refuses a template that does.
            instance_market_options=purchase.market if purchase.block_id else None,
            instance_type=kind.facts.name if purchase.block_id else None,
            metadata_options=_METADATA,
            network_interfaces=plan_interfaces(kind.facts, self._groups, is_public=False),
            placement=_Template.PlacementProperty(group_name=place) if place else None,
            tag_specifications=[
                _Template.TagSpecificationProperty(resource_type=resource, tags=tags) for resource in resources
            ],
            user_data=make_user_data(kind.node_image, kind.facts),
        )
        return _Template(self, f"{kind.name}Template", launch_template_data=data)

    def _describe_disks(self, kind: _Kind) -> list[ec2.CfnLaunchTemplate.BlockDeviceMappingProperty]:
        """Return the disks: Bottlerocket has images on its second one, Amazon Linux everything on its only one."""
        if kind.node_image == "amazon-linux":
            return [self._describe_disk("/dev/xvda", kind.disk, kind.throughput)]
        root = self._describe_disk("/dev/xvda", _ROOT_GIBIBYTES)
        return [root, self._describe_disk("/dev/xvdb", kind.disk, kind.throughput)]

    def _describe_disk(
        self, device: str, size: Size | int, throughput: int | None = None
    ) -> ec2.CfnLaunchTemplate.BlockDeviceMappingProperty:
        return _Template.BlockDeviceMappingProperty(
            device_name=device,
            ebs=_Template.EbsProperty(
                volume_size=count_gibibytes(size),
                volume_type="gp3",
                throughput=throughput,
                encrypted=True,
                kms_key_id=self._key_arn,
                delete_on_termination=True,
            ),
        )

    def _make_group(self, kind: _Kind) -> _Group:
        template = self._make_template(kind)
        return _Group(
            self,
            kind.name,
            cluster_name=self._cluster.ref,
            node_role=self.role.role_arn,
            subnets=[self._subnet.subnet_id],
            ami_type=name_ami_type(kind.node_image, kind.facts),
            capacity_type=_CAPACITY_TYPES.get(kind.purchase.kind, "ON_DEMAND"),
            instance_types=None if kind.purchase.block_id else [kind.facts.name],
            launch_template=_Group.LaunchTemplateSpecificationProperty(
                id=template.ref, version=template.attr_latest_version_number
            ),
            # The user may scale the members to 0.
            scaling_config=_Group.ScalingConfigProperty(min_size=0, desired_size=kind.initial, max_size=kind.count),
            update_config=_Group.UpdateConfigProperty(max_unavailable=1, update_strategy=kind.update_strategy),
            node_repair_config=_Group.NodeRepairConfigProperty(enabled=True),
        )
