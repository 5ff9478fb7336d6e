"""Groups with launch configurations, and the policies and schedules that the CDK gives to groups."""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2

from tests.embedded_aws.test_single_instances import SMALL, UBUNTU, make_vpc

TERMINATING = autoscaling.LifecycleTransition.INSTANCE_TERMINATING
TEMPLATES = "@aws-cdk/aws-autoscaling:generateLaunchTemplateInsteadOfLaunchConfig"


def make_group(stack, **options):
    """Add a group of one instance of Ubuntu."""
    return autoscaling.AutoScalingGroup(
        stack,
        "Fleet",
        vpc=make_vpc(stack),
        instance_type=SMALL,
        machine_image=ec2.MachineImage.from_ssm_parameter(UBUNTU, os=ec2.OperatingSystemType.LINUX),
        associate_public_ip_address=True,
        **options,
    )


def add_policies(group):
    """Add what the CDK has to scale a group."""
    group.scale_on_cpu_utilization("Cpu", target_utilization_percent=60)
    group.scale_on_schedule("Morning", schedule=autoscaling.Schedule.cron(hour="8", minute="0"), min_capacity=1)
    metric = cloudwatch.Metric(namespace="AWS/EC2", metric_name="CPUUtilization")
    steps = [(None, 10, -1), (50, None, 1), (70, None, 3)]
    group.scale_on_metric(
        "Step",
        metric=metric,
        scaling_steps=[
            autoscaling.ScalingInterval(lower=low, upper=high, change=change) for low, high, change in steps
        ],
    )
    group.scale_to_track_metric("Track", metric=metric, target_value=50)


@pytest.fixture
def deploy(tmp_path, start_cloud):
    """Return the function that deploys a group with options, after a function changed its construct."""

    def synthesize(change=lambda _: None, *, templates=True, **options):
        app = cdk.App(
            outdir=str(tmp_path / "cdk.out"), context={TEMPLATES: templates}, builtin_cloud_formation_validation=False
        )
        change(make_group(cdk.Stack(app, "sample"), **options))
        app.synth()
        cloud = start_cloud()
        cloud.answer = cloud.deploy(tmp_path / "cdk.out")
        return cloud

    return synthesize


def test_a_group_launches_from_a_launch_configuration_and_has_its_policies(deploy):
    cloud = deploy(
        add_policies,
        templates=False,
        auto_scaling_group_name="fleet",
        group_metrics=[autoscaling.GroupMetrics.all()],
        max_instance_lifetime=cdk.Duration.days(7),
        cooldown=cdk.Duration.minutes(1),
        default_instance_warmup=cdk.Duration.minutes(1),
        update_policy=autoscaling.UpdatePolicy.rolling_update(),
        instance_monitoring=autoscaling.Monitoring.DETAILED,
    )
    outcome = cloud.end()
    assert (outcome["status"], outcome["reason"]) == ("CREATE_COMPLETE", "")
    machine = cloud.next(lambda line: line["kind"] == "boot")["machine"]
    assert (machine["instance_type"], machine["login_user"]) == ("t3.micro", "ubuntu")
    assert machine["role_name"]
    (group,) = cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert group["AutoScalingGroupName"] == "fleet"
    assert group["LaunchConfigurationName"] == group["Instances"][0]["LaunchConfigurationName"]
    assert "LaunchTemplate" not in group
    kinds = [row["resource_type"].rpartition("::")[2] for row in outcome["resources"]]
    assert {kind: kinds.count(kind) for kind in ("ScalingPolicy", "ScheduledAction", "Alarm")} == {
        "ScalingPolicy": 4,
        "ScheduledAction": 1,
        "Alarm": 2,
    }


def policy(**properties):
    """Return the function that adds a scaling policy to a group."""
    return lambda group: autoscaling.CfnScalingPolicy(
        cdk.Stack.of(group), "Own", auto_scaling_group_name=group.auto_scaling_group_name, **properties
    )


def steps(*ranges):
    """Return the function that adds a policy of steps."""
    adjustments = [
        {"scalingAdjustment": 1, "metricIntervalLowerBound": low, "metricIntervalUpperBound": high}
        for low, high in ranges
    ]
    return policy(policy_type="StepScaling", adjustment_type="ChangeInCapacity", step_adjustments=adjustments)


def action(**properties):
    """Return the function that adds a scheduled action to a group."""
    return lambda group: autoscaling.CfnScheduledAction(
        cdk.Stack.of(group), "Own", auto_scaling_group_name=group.auto_scaling_group_name, **properties
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (policy(adjustment_type="ChangeInCapacity"), "ScalingAdjustment must be given"),
        (policy(scaling_adjustment=1), "AdjustmentType must be one of"),
        (policy(policy_type="TargetTrackingScaling"), "TargetTrackingConfiguration must be given"),
        (steps((0, 10), (20, None)), "must neither overlap nor leave a gap"),
        (steps((0, 20), (10, None)), "must neither overlap nor leave a gap"),
        (steps((-10, 0)), "must reach without a bound"),
        (action(recurrence="0 8 * * *"), "At least one of MinSize"),
        (action(min_size=1, recurrence="0 8 * *"), "Recurrence must have five fields"),
    ],
)
def test_a_policy_that_auto_scaling_refuses_fails_the_stack(deploy, change, words):
    outcome = deploy(change).end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert words in outcome["reason"]


def test_a_launch_configuration_that_names_a_missing_key_is_refused(deploy):
    outcome = deploy(templates=False, key_name="nobodys").end()
    assert outcome["reason"] == "The key pair 'nobodys' does not exist"


def test_a_lifecycle_hook_is_refused_by_name_because_it_would_hold_instances(deploy):
    cloud = deploy(lambda group: group.add_lifecycle_hook("Hook", lifecycle_transition=TERMINATING))
    assert "type AWS::AutoScaling::LifecycleHook" in cloud.answer


def test_a_pool_without_capacity_refuses_what_goes_beyond_it_until_an_instance_ends(start_cloud, asking_assembly):
    cloud = start_cloud(pools=[{"zone": "us-east-1a", "instances": 2}], pace={"retries": [0.05]})
    cloud.deploy(asking_assembly)
    cloud.ask("WorkerGroup", 3)
    workers = [cloud.machine("worker") for _ in range(2)]
    cloud.observation("launch failed: InsufficientInstanceCapacity")
    assert len(cloud.seen("launched for worker")) == 2
    cloud.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=workers[0]["instance_id"], ShouldDecrementDesiredCapacity=True
    )
    assert cloud.machine("worker")["zone"] == "us-east-1a"
