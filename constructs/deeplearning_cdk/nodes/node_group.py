"""Nodes of one role: launch template and Auto Scaling group."""

from collections.abc import Sequence
from typing import cast

import jsii
from aws_cdk import CfnAutoScalingScheduledAction, CfnUpdatePolicy, Duration, Size
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct, IDependable

from deeplearning_cdk.capacity.purchase import ON_DEMAND, Purchase
from deeplearning_cdk.cluster_props import VolumeSize
from deeplearning_cdk.creation_order import prune_dependencies
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.nodes.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.nodes.interfaces import plan_interfaces
from deeplearning_cdk.nodes.tag_keys import InstanceTags
from deeplearning_cdk.nodes.user_data import NodeUserData
from deeplearning_cdk.operations.cost_tags import name_tags, tag_launched
from deeplearning_cdk.props.rules import count_gibibytes
from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_contract.names import NodeRole

DEFAULT_VOLUME_GIBIBYTES = 150

_EVENTS = [
    "autoscaling:EC2_INSTANCE_LAUNCH",
    "autoscaling:EC2_INSTANCE_LAUNCH_ERROR",
    "autoscaling:EC2_INSTANCE_TERMINATE",
    "autoscaling:EC2_INSTANCE_TERMINATE_ERROR",
]
_Template = ec2.CfnLaunchTemplate
_METADATA = _Template.MetadataOptionsProperty(
    http_tokens="required", http_put_response_hop_limit=1, instance_metadata_tags="enabled"
)


@jsii.implements(iam.IGrantable, ec2.IConnectable)
class NodeGroup(Construct):
    """
    Nodes of one role in one subnet.

    Instances ask for IMDSv2 with one hop, read their tags there, and have encrypted gp3 volumes. The group's
    minimum is 0 in the template and its desired capacity is not there: a new group then has none, and a deployment
    changes nothing (UpdateAutoScalingGroup: "Any properties that you don't specify are not changed"). A literal 0 would
    be set again by the rollback of an update, in which CloudFormation ignores the update policy below.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster's name, for the tag.
        node_role: What the nodes are for, for the tag.
        facts: The instance type.
        image: What the nodes start from.
        role: The instances' role.
        user_data: User data.
        subnet: The subnet of all nodes.
        security_groups: Groups of every interface.
        topic: Where the group's events go.
        max_capacity: Most nodes that a user may scale to.
        image_id: The id of the image, where it is pinned. Default: what the image's parameter names at each deployment.
        purchase: How the nodes are paid for. Default: on demand.
        is_public: Nodes get a public address. Default: they do not, whatever the subnet gives.
        volume_size: Size of the root volume. Default: 150 GiB.
        encryption_key: Encrypts the volumes. Default: the account's key for EBS.
        key_name: EC2 key pair for the login user. Default: none.
        placement_group_name: Where the nodes are placed. Default: anywhere in the zone.

    Attributes:
        role: The instances' role.
        group: The Auto Scaling group.
        launch_template: Its launch template.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: str,
        node_role: NodeRole,
        facts: InstanceTypeFacts,
        image: NodeImage,
        role: iam.IRole,
        user_data: NodeUserData,
        subnet: ec2.ISubnet,
        security_groups: Sequence[ec2.ISecurityGroup],
        topic: sns.ITopic,
        max_capacity: int,
        image_id: str | None = None,
        purchase: Purchase = ON_DEMAND,
        is_public: bool = False,
        volume_size: VolumeSize | None = None,
        encryption_key: kms.IKey | None = None,
        key_name: str | None = None,
        placement_group_name: str | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.role, self._user_data = role, user_data
        self._connections = ec2.Connections(security_groups=list(security_groups))
        profile = iam.CfnInstanceProfile(self, "InstanceProfile", roles=[role.role_name])
        data = _Template.LaunchTemplateDataProperty(
            block_device_mappings=[_describe_volume(image, volume_size, encryption_key)],
            capacity_reservation_specification=purchase.template_reservation,
            iam_instance_profile=_Template.IamInstanceProfileProperty(arn=profile.attr_arn),
            image_id=image_id or image.read_ami_id(self),
            instance_market_options=purchase.market,
            instance_type=facts.name,
            key_name=key_name,
            metadata_options=_METADATA,
            network_interfaces=plan_interfaces(
                facts, [group.security_group_id for group in security_groups], is_public=is_public
            ),
            tag_specifications=tag_launched(lambda: self.group),
            user_data=user_data.base64,
        )
        self.launch_template = _Template(self, "LaunchTemplate", launch_template_data=data)
        if is_public:
            acknowledge(self.launch_template, "public-route")
        tags = name_tags(cluster, node_role)
        self.group = self.node.default_child = autoscaling.CfnAutoScalingGroup(
            self,
            "Group",
            min_size="0",
            max_size=str(max_capacity),
            launch_template=autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
                launch_template_id=self.launch_template.ref, version=self.launch_template.attr_latest_version_number
            ),
            vpc_zone_identifier=[subnet.subnet_id],
            placement_group=placement_group_name,
            capacity_reservation_specification=purchase.group_reservation,
            notification_configurations=[_notify(topic)],
            tags=[_propagate(key, value) for key, value in tags.items()],
        )
        self.group.node.add_validation(InstanceTags(self.group, tags))
        _keep_adjusted_capacity(self.group)
        prune_dependencies(self.group)

    @property
    def connections(self) -> ec2.Connections:
        """The nodes' connections."""
        return self._connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The nodes' role."""
        return self.role

    @property
    def group_name(self) -> str:
        """Name of the Auto Scaling group."""
        return self.group.ref

    @property
    def auto_scaling_group(self) -> autoscaling.IAutoScalingGroup:
        """The group as the CDK's interface: schedules, lifecycle hooks and policies are added to it."""
        known = self.node.try_find_child("AutoScalingGroup")
        if known is not None:
            return cast("autoscaling.IAutoScalingGroup", known)
        return autoscaling.AutoScalingGroup.from_auto_scaling_group_name(self, "AutoScalingGroup", self.group_name)

    def add_user_data(self, *commands: str) -> None:
        """
        Add commands to the user data, in the order of the calls.

        Every node of the group runs them at its first boot and never again: as root, by `bash -eo pipefail`, before its
        agent starts, so without the shared file system. The first that fails is reported with the last lines of
        /var/log/deeplearning-bootstrap.log, and the node does not join. Nodes that run keep the user data that they
        had. A `setup_script` has room for more than 16 KiB, and `deeplearning setup` runs it again.

        Args:
            commands: Lines of shell; tokens are filled in at deployment.

        Raises:
            ValueError: A command is no text, has CR, NUL or a line USER_DATA, or user data is over EC2's limit.
        """
        self._user_data.add_commands(*commands)

    def launch_after(self, *dependencies: IDependable) -> None:
        """Launch no node before something is there."""
        self.group.node.add_dependency(*dependencies)

    def metric(
        self, metric_name: str, *, statistic: str = "Average", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """
        Return an EC2 metric over the nodes of the group.

        Args:
            metric_name: Its name in the namespace AWS/EC2.
            statistic: How values are combined. Default: the average.
            period: Length of a data point. Default: 5 minutes, as EC2 measures without detailed monitoring.
        """
        return cloudwatch.Metric(
            namespace="AWS/EC2",
            metric_name=metric_name,
            dimensions_map={"AutoScalingGroupName": self.group_name},
            statistic=statistic,
            period=period or Duration.minutes(5),
        )

    def metric_cpu_utilization(self) -> cloudwatch.Metric:
        """Return the average CPU utilization of the nodes, in percent."""
        return self.metric("CPUUtilization")

    def metric_network_in(self) -> cloudwatch.Metric:
        """Return the bytes that the nodes received; EFA's traffic does not count."""
        return self.metric("NetworkIn", statistic="Sum")

    def metric_network_out(self) -> cloudwatch.Metric:
        """Return the bytes that the nodes sent; EFA's traffic does not count."""
        return self.metric("NetworkOut", statistic="Sum")


def _describe_volume(
    image: NodeImage, size: Size | int | None, key: kms.IKey | None
) -> ec2.CfnLaunchTemplate.BlockDeviceMappingProperty:
    return _Template.BlockDeviceMappingProperty(
        device_name=image.root_device,
        ebs=_Template.EbsProperty(
            volume_size=count_gibibytes(DEFAULT_VOLUME_GIBIBYTES if size is None else size),
            volume_type="gp3",
            encrypted=True,
            kms_key_id=key.key_arn if key else None,
            delete_on_termination=True,
        ),
    )


def _propagate(key: str, value: str) -> autoscaling.CfnAutoScalingGroup.TagPropertyProperty:
    return autoscaling.CfnAutoScalingGroup.TagPropertyProperty(key=key, value=value, propagate_at_launch=True)


def _notify(topic: sns.ITopic) -> autoscaling.CfnAutoScalingGroup.NotificationConfigurationProperty:
    return autoscaling.CfnAutoScalingGroup.NotificationConfigurationProperty(
        topic_arn=topic.topic_arn, notification_types=_EVENTS
    )


def _keep_adjusted_capacity(group: autoscaling.CfnAutoScalingGroup) -> None:
    """Without it a deployment would reset what the adjuster or the user has set since (aws-cdk#5215)."""
    group.cfn_options.update_policy = CfnUpdatePolicy(
        auto_scaling_scheduled_action=CfnAutoScalingScheduledAction(ignore_unmodified_group_size_properties=True)
    )
