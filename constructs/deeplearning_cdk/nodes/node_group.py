"""Nodes of one role: launch template and Auto Scaling group."""

from collections.abc import Sequence
from typing import cast

import jsii
from aws_cdk import Duration, Size
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct, IDependable

from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.network.interfaces import plan_interfaces
from deeplearning_cdk.nodes.plan import RolePlan
from deeplearning_cdk.nodes.programs import NodeSite
from deeplearning_cdk.nodes.user_data import NodeUserData
from deeplearning_cdk.props.rules import count_gibibytes
from deeplearning_cdk.props.tags import InstanceTags, name_tags, tag_launched
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

    Instances require IMDSv2 with one hop, expose their tags in it, and have encrypted gp3 volumes. The template sets
    the group's minimum to 0 and omits its desired capacity: a new group then has no instances, and a deployment changes
    nothing (UpdateAutoScalingGroup: "Any properties that you don't specify are not changed"). The rollback of an update
    would set a literal 0 again, because it ignores the update policy below.

    Template and group are L1: the CDK's `LaunchTemplate` has no network interfaces and no capacity reservation, and its
    `AutoScalingGroup` no placement group and no capacity reservation (aws-cdk-lib 2.275.0, launch-template.ts of
    aws-ec2 and auto-scaling-group.ts of aws-autoscaling), so that most of both would be overrides.
    `auto_scaling_group` is the group as the CDK's interface.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        node_role: The nodes' role.
        plan: Instance type, purchase option, capacity and volume of the nodes.
        image: The nodes' image.
        site: Resources that the nodes of both roles use.
        role: The instances' IAM role.
        user_data: User data.
        security_groups: Security groups of every interface.
        candidate: Candidate tag of the group.
        subnet: Subnet of the nodes.
        is_public: True if the nodes have public addresses, which the subnet must be for.
        placement_group_name: Placement group of the nodes. Default: none, anywhere in the zone.

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
        node_role: NodeRole,
        plan: RolePlan,
        image: NodeImage,
        site: NodeSite,
        role: iam.IRole,
        user_data: NodeUserData,
        security_groups: Sequence[ec2.ISecurityGroup],
        candidate: str,
        subnet: ec2.ISubnet,
        is_public: bool,
        placement_group_name: str | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.role, self._user_data = role, user_data
        self._connections = ec2.Connections(security_groups=list(security_groups))
        profile = iam.CfnInstanceProfile(self, "InstanceProfile", roles=[role.role_name])
        data = _Template.LaunchTemplateDataProperty(
            block_device_mappings=[_describe_volume(image, plan.volume_size, site.key_arn)],
            capacity_reservation_specification=plan.purchase.template_reservation,
            iam_instance_profile=_Template.IamInstanceProfileProperty(arn=profile.attr_arn),
            image_id=site.image_id,
            instance_market_options=plan.purchase.market,
            instance_type=plan.facts.name,
            key_name=site.key_name,
            metadata_options=_METADATA,
            network_interfaces=plan_interfaces(
                plan.facts, [group.security_group_id for group in security_groups], is_public=is_public
            ),
            tag_specifications=tag_launched(lambda: self.group),
            user_data=user_data.base64,
        )
        self.launch_template = _Template(self, "LaunchTemplate", launch_template_data=data)
        if is_public:
            acknowledge(self.launch_template, "public-route")
        tags = name_tags(site.cluster, node_role, candidate)
        self.group = self.node.default_child = autoscaling.CfnAutoScalingGroup(
            self,
            "Group",
            min_size="0",
            max_size=str(plan.max_capacity),
            launch_template=autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
                launch_template_id=self.launch_template.ref, version=self.launch_template.attr_latest_version_number
            ),
            vpc_zone_identifier=[subnet.subnet_id],
            placement_group=placement_group_name,
            capacity_reservation_specification=plan.purchase.group_reservation,
            notification_configurations=[_notify(site.coordination.topic)],
            tags=[_propagate(key, value) for key, value in tags.items()],
        )
        self.group.node.add_validation(InstanceTags(self.group, tags))
        _keep_adjusted_capacity(self.group)

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
        """The group as the CDK's interface, to which schedules, lifecycle hooks and policies can be added."""
        known = self.node.try_find_child("AutoScalingGroup")
        if known is not None:
            return cast("autoscaling.IAutoScalingGroup", known)
        return autoscaling.AutoScalingGroup.from_auto_scaling_group_name(self, "AutoScalingGroup", self.group_name)

    def add_user_data(self, *commands: str) -> None:
        """
        Add commands to the user data, in the order of the calls.

        Every node of the group, and of the groups of its role in other candidates, runs them once, at its first boot:
        as root, with `bash -eo pipefail`, before its agent
        starts, so without the shared file system. The first failure is reported with the last lines of
        /var/log/deeplearning-bootstrap.log, and the node does not join. Running nodes keep their user data. A
        `setup_script` may be larger than 16 KiB, and `deeplearning setup` runs it again.

        Args:
            commands: Lines of shell; tokens are filled in at deployment.

        Raises:
            ValueError: A command is not a string, contains CR, NUL or a line USER_DATA, or user data exceeds EC2's
                limit.
        """
        self._user_data.add_commands(*commands)

    def launch_after(self, *dependencies: IDependable) -> None:
        """Launch nodes only after the dependencies exist."""
        self.group.node.add_dependency(*dependencies)

    def metric(
        self, metric_name: str, *, statistic: str = "Average", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """
        Return an EC2 metric over the nodes of the group.

        Args:
            metric_name: Its name in the namespace AWS/EC2.
            statistic: Statistic of the values. Default: the average.
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
        """Return the bytes that the nodes received, without EFA traffic."""
        return self.metric("NetworkIn", statistic="Sum")

    def metric_network_out(self) -> cloudwatch.Metric:
        """Return the bytes that the nodes sent, without EFA traffic."""
        return self.metric("NetworkOut", statistic="Sum")


def _describe_volume(
    image: NodeImage, size: Size | int | None, key_arn: str
) -> ec2.CfnLaunchTemplate.BlockDeviceMappingProperty:
    return _Template.BlockDeviceMappingProperty(
        device_name=image.root_device,
        ebs=_Template.EbsProperty(
            volume_size=count_gibibytes(DEFAULT_VOLUME_GIBIBYTES if size is None else size),
            volume_type="gp3",
            encrypted=True,
            kms_key_id=key_arn,
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
    """Keep the capacity that the adjuster or the user has set, which a deployment would reset (aws-cdk#5215)."""
    group.add_override("UpdatePolicy.AutoScalingScheduledAction.IgnoreUnmodifiedGroupSizeProperties", True)  # noqa: FBT003
