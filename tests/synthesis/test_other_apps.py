"""The referees find nothing in small apps of other kinds, which AWS takes."""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_backup as backup
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_elasticloadbalancingv2 as balancing
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs

from cdk_rehearsal.referees.judge import judge_template

MINUTE = cdk.Duration.minutes(1)


def balance(stack):
    """Add a fleet behind a load balancer's target group."""
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    image = ec2.MachineImage.latest_amazon_linux2023()
    kind = ec2.InstanceType("m7i.large")
    group = autoscaling.AutoScalingGroup(
        stack, "Fleet", vpc=vpc, instance_type=kind, machine_image=image, max_capacity=4
    )
    group.scale_on_cpu_utilization("Cpu", target_utilization_percent=60)
    balancer = balancing.ApplicationLoadBalancer(stack, "Balancer", vpc=vpc, internet_facing=True)
    balancer.add_listener("Http", port=80).add_targets("Fleet", port=8080, targets=[group])


def work_off(stack):
    """Add a function that works off a queue with dead letters."""
    dead = sqs.Queue(stack, "Dead", retention_period=cdk.Duration.days(14))
    letters = sqs.DeadLetterQueue(max_receive_count=3, queue=dead)
    queue = sqs.Queue(stack, "Queue", visibility_timeout=cdk.Duration.minutes(30), dead_letter_queue=letters)
    function = make_function(stack, timeout=cdk.Duration.minutes(5))
    function.add_event_source(sources.SqsEventSource(queue, batch_size=100, max_batching_window=MINUTE))


def connect(stack):
    """Add a VPC without NAT that reaches AWS through endpoints."""
    vpc = ec2.Vpc(stack, "Vpc", nat_gateways=0, max_azs=3)
    vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
    for name in ("SQS", "CLOUDWATCH_LOGS", "SSM"):
        vpc.add_interface_endpoint(name, service=getattr(ec2.InterfaceVpcEndpointAwsService, name))
    vpc.add_flow_log("Flow")


def share(stack):
    """Add a file system with an access point that a function mounts."""
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2, nat_gateways=1)
    files = efs.FileSystem(stack, "Files", vpc=vpc, lifecycle_policy=efs.LifecyclePolicy.AFTER_14_DAYS)
    owner = {"owner_uid": "1000", "owner_gid": "1000", "permissions": "750"}
    point = files.add_access_point(
        "Data", path="/data", create_acl=efs.Acl(**owner), posix_user=efs.PosixUser(uid="1000", gid="1000")
    )
    make_function(stack, vpc=vpc, filesystem=functions.FileSystem.from_efs_access_point(point, "/mnt/data"))


def schedule(stack):
    """Add rules of EventBridge with a function, a queue and a topic as targets."""
    queue, topic, function = sqs.Queue(stack, "Queue"), sns.Topic(stack, "Topic"), make_function(stack)
    events.Rule(
        stack,
        "Nightly",
        schedule=events.Schedule.cron(minute="0", hour="4"),
        targets=[targets.LambdaFunction(function)],
    )
    pattern = events.EventPattern(source=["aws.ec2"], detail_type=["EC2 Instance State-change Notification"])
    events.Rule(stack, "Changes", event_pattern=pattern, targets=[targets.SqsQueue(queue), targets.SnsTopic(topic)])


def keep(stack):
    """Add a budget with a subscriber, and a backup plan of a file system."""
    files = efs.FileSystem(stack, "Files", vpc=ec2.Vpc(stack, "Vpc", max_azs=1))
    plan = backup.BackupPlan.daily_weekly_monthly7_year_retention(stack, "Plan")
    plan.add_selection("Files", resources=[backup.BackupResource.from_efs_file_system(files)])
    spend = budgets.CfnBudget.SpendProperty(amount=1000, unit="USD")
    budget = budgets.CfnBudget.BudgetDataProperty(budget_type="COST", time_unit="MONTHLY", budget_limit=spend)
    notice = budgets.CfnBudget.NotificationProperty(
        notification_type="ACTUAL", comparison_operator="GREATER_THAN", threshold=80, threshold_type="PERCENTAGE"
    )
    address = budgets.CfnBudget.SubscriberProperty(subscription_type="EMAIL", address="ops@example.com")
    subscribers = [budgets.CfnBudget.NotificationWithSubscribersProperty(notification=notice, subscribers=[address])]
    budgets.CfnBudget(stack, "Budget", budget=budget, notifications_with_subscribers=subscribers)


def make_function(stack, **props):
    """Return a function without work."""
    code = functions.Code.from_inline("def handler(event, context): ...")
    return functions.Function(
        stack, "Function", runtime=functions.Runtime.PYTHON_3_13, handler="index.handler", code=code, **props
    )


@pytest.mark.parametrize("build", [balance, work_off, connect, share, schedule, keep], ids=lambda build: build.__name__)
def test_the_referees_find_nothing_in_an_app_of_another_kind(build, tmp_path):
    app = cdk.App(outdir=str(tmp_path), analytics_reporting=False, builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Other")
    build(stack)
    (artifact,) = app.synth().stacks
    assert [str(finding) for finding in judge_template(artifact.template, "us-east-1", {})] == []
