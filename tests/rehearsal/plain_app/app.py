"""An ordinary app: a group behind a load balancer, functions, a queue, a schedule, and a bucket that empties itself."""

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs

SETUP = """set -e
apt-get update -y
apt-get install -y python3-pip
pip3 install https://s3.amazonaws.com/cloudformation-examples/aws-cfn-bootstrap-py3-latest.tar.gz
mkdir -p /opt/aws /srv/www && ln -s /usr/local/bin /opt/aws/bin
echo ok > /srv/www/index.html
systemd-run --unit web python3 -m http.server 80 -d /srv/www"""
UBUNTU = "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id"

app = cdk.App()
stack = cdk.Stack(app, "web")
vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
group = autoscaling.AutoScalingGroup(
    stack,
    "Fleet",
    vpc=vpc,
    instance_type=ec2.InstanceType("t3.micro"),
    machine_image=ec2.MachineImage.from_ssm_parameter(UBUNTU),
    min_capacity=2,
    max_capacity=4,
    signals=autoscaling.Signals.wait_for_all(timeout=cdk.Duration.minutes(10)),
)
group.add_user_data(SETUP)
group.user_data.add_signal_on_exit_command(group)
balancer = elbv2.ApplicationLoadBalancer(stack, "Balancer", vpc=vpc, internet_facing=True)
balancer.add_listener("Http", port=80).add_targets(
    "Fleet",
    port=80,
    targets=[group],
    health_check=elbv2.HealthCheck(path="/index.html", interval=cdk.Duration.seconds(5), healthy_threshold_count=2),
)
group.scale_on_cpu_utilization("Cpu", target_utilization_percent=60)
queue = sqs.Queue(stack, "Queue")
greeter = lambda_.Function(
    stack,
    "Python",
    runtime=lambda_.Runtime.PYTHON_3_12,
    handler="index.handler",
    code=lambda_.Code.from_inline("def handler(event, context):\n    return 1\n"),
    environment={"QUEUE": queue.queue_url},
)
queue.grant_send_messages(greeter)
counter = lambda_.Function(
    stack,
    "Node",
    runtime=lambda_.Runtime.NODEJS_22_X,
    handler="index.handler",
    code=lambda_.Code.from_inline("exports.handler = async () => 1;"),
)
called = [targets.LambdaFunction(each) for each in (greeter, counter)]
events.Rule(stack, "Schedule", schedule=events.Schedule.rate(cdk.Duration.minutes(1)), targets=called)
bucket = s3.Bucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True)
bucket.grant_read(group)
app.synth()
