# ruff: noqa: INP001 - an app is a script, not a package
"""
Experiment on an account: what Auto Scaling says and does when a zone has no capacity, for the price of a cheap type.

    pip install ../..                # a checkout in which `make setup` has run
    npx cdk deploy --app "python app.py" -c zone=us-east-1a

The stack has an empty group like those of a cluster's candidates, and an experiment of AWS Fault Injection Service that
refuses the group's launches for ten minutes. `README.md` has the steps, and the table for what they show.
"""

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fis as fis
from aws_cdk import aws_iam as iam
from constructs import Construct

ACTION = "aws:ec2:asg-insufficient-instance-capacity-error"
MOST = 2
TAG = "capacity-experiment"


class CapacityExperiment(cdk.Stack):
    """Group that asks for nothing by itself, and experiment that refuses its launches."""

    def __init__(self, scope: Construct, construct_id: str, *, zone: str, instance_type: str) -> None:
        super().__init__(scope, construct_id, env=cdk.Environment(region=zone[:-1]))
        group = self._make_group(zone, instance_type)
        experiment = self._make_experiment(zone, group.ref)
        name = f"--auto-scaling-group-name {group.ref}"
        columns = "Activities[].[StartTime,EndTime,StatusCode,StatusMessage]"
        commands = {
            "Refuse": f"aws fis start-experiment --experiment-template-id {experiment.attr_id}",
            "Ask": f"aws autoscaling set-desired-capacity {name} --desired-capacity {MOST}",
            "Read": f"aws autoscaling describe-scaling-activities {name} --query '{columns}' --output table",
            "Suspend": f"aws autoscaling suspend-processes {name} --scaling-processes Launch",
            "Stop": f"aws autoscaling set-desired-capacity {name} --desired-capacity 0",
        }
        for output, command in commands.items():
            cdk.CfnOutput(self, output, value=command)

    def _make_group(self, zone: str, instance_type: str) -> autoscaling.CfnAutoScalingGroup:
        """Make the group as a cluster has it: in one zone, without a desired capacity."""
        public = ec2.SubnetConfiguration(name="Public", subnet_type=ec2.SubnetType.PUBLIC)
        vpc = ec2.Vpc(
            self,
            "Vpc",
            availability_zones=[zone],
            nat_gateways=0,
            subnet_configuration=[public],
            restrict_default_security_group=False,
        )
        template = ec2.LaunchTemplate(
            self,
            "Template",
            instance_type=ec2.InstanceType(instance_type),
            machine_image=ec2.MachineImage.latest_amazon_linux2023(),
            security_group=ec2.SecurityGroup(self, "Closed", vpc=vpc),
            require_imdsv2=True,
        )
        group = autoscaling.CfnAutoScalingGroup(
            self,
            "Group",
            min_size="0",
            max_size=str(MOST),
            launch_template=autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
                launch_template_id=template.launch_template_id, version=template.latest_version_number
            ),
            vpc_zone_identifier=[vpc.public_subnets[0].subnet_id],
        )
        cdk.Tags.of(group).add(TAG, "yes")
        return group

    def _make_experiment(self, zone: str, group: str) -> fis.CfnExperimentTemplate:
        """Parameters, target and rights: AWS FIS user guide, "AWS FIS Actions reference"."""
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "fis.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": self.account}}
            ),
        )
        arn = f"arn:{self.partition}:autoscaling:{self.region}:{self.account}:autoScalingGroup:*:autoScalingGroupName"
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["ec2:InjectApiError"],
                resources=["*"],
                conditions={
                    "StringEquals": {"ec2:FisActionId": ACTION},
                    "ForAllValues:ArnLike": {"ec2:FisTargetArns": [f"{arn}/{group}"]},
                },
            )
        )
        role.add_to_policy(iam.PolicyStatement(actions=["autoscaling:DescribeAutoScalingGroups"], resources=["*"]))
        experiment = fis.CfnExperimentTemplate(
            self,
            "Experiment",
            description="refuse the launches of a group",
            role_arn=role.role_arn,
            stop_conditions=[fis.CfnExperimentTemplate.ExperimentTemplateStopConditionProperty(source="none")],
            targets={
                "groups": fis.CfnExperimentTemplate.ExperimentTemplateTargetProperty(
                    resource_type="aws:ec2:autoscaling-group", resource_tags={TAG: "yes"}, selection_mode="ALL"
                )
            },
            actions={
                "refuse": fis.CfnExperimentTemplate.ExperimentTemplateActionProperty(
                    action_id=ACTION,
                    parameters={"duration": "PT10M", "availabilityZoneIdentifiers": zone, "percentage": "100"},
                    targets={"AutoScalingGroups": "groups"},
                )
            },
            tags={"Name": TAG},
        )
        experiment.node.add_dependency(role)
        return experiment


app = cdk.App()
CapacityExperiment(
    app,
    "capacity-experiment",
    zone=app.node.try_get_context("zone") or "us-east-1a",
    instance_type=app.node.try_get_context("type") or "t3.micro",
)
app.synth()
