"""Two web servers on Amazon Linux; the stack completes when both have signalled that they serve."""

from aws_cdk import App, CfnWaitCondition, CfnWaitConditionHandle, Duration, Stack
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

SIZE = 2
SETUP = """cat > /etc/systemd/system/web.service <<'UNIT'
[Service]
ExecStart=/usr/bin/python3 -m http.server 8080
User=ec2-user
Restart=always
[Install]
WantedBy=multi-user.target
UNIT
systemctl enable --now web.service
curl --silent --retry 10 --retry-connrefused --output /dev/null http://localhost:8080/"""


class Fleet(Stack):
    """VPC with one public subnet, and group whose instances set up a service."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        vpc = ec2.Vpc(self, "Vpc", max_azs=1, nat_gateways=0, restrict_default_security_group=False)
        ready = CfnWaitConditionHandle(self, "Ready")
        user_data = ec2.UserData.for_linux()
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name("AmazonSSMManagedInstanceCore")],
        )
        template = ec2.LaunchTemplate(
            self,
            "Template",
            instance_type=ec2.InstanceType("t3.micro"),
            machine_image=ec2.MachineImage.latest_amazon_linux2023(),
            security_group=ec2.SecurityGroup(self, "Web", vpc=vpc),
            user_data=user_data,
            role=role,
            require_imdsv2=True,
        )
        group = autoscaling.AutoScalingGroup(
            self,
            "Group",
            vpc=vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC),
            launch_template=template,
            min_capacity=SIZE,
            max_capacity=SIZE,
            signals=autoscaling.Signals.wait_for_all(timeout=Duration.minutes(5)),
        )
        group.node.add_dependency(*vpc.public_subnets)  # with their routes, without which no instance can signal
        user_data.add_signal_on_exit_command(group)
        user_data.add_commands("set -e", SETUP, f"/opt/aws/bin/cfn-signal --reason serves '{ready.ref}'")
        CfnWaitCondition(self, "Serving", handle=ready.ref, count=SIZE, timeout="300").node.add_dependency(group)


app = App()
Fleet(app, "fleet")
app.synth()
