"""Instances that are found unhealthy: who finds it, what the activities say, and what is suspended."""

import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

USER = "an instance was taken out of service in response to a user health-check."
STOPPED = (
    "an instance was taken out of service in response to an EC2 health check indicating it has been terminated or "
    "stopped."
)
IMPAIRED = "an instance was taken out of service in response to an EC2 instance status checks failure."


@pytest.fixture(scope="module")
def cloud(start_cloud, assemble, tmp_path_factory):
    """An embedded AWS with a master and four workers in service; the masters' group has a grace period."""
    template = json.loads((Path(__file__).parent / "sample_template.json").read_text())
    template["Resources"]["MasterGroup"]["Properties"]["HealthCheckGracePeriod"] = 3600
    assembly = assemble(tmp_path_factory.mktemp("health") / "cdk.out", template)
    cloud = start_cloud(minute_seconds=3600)
    cloud.deploy(assembly, size=4)
    cloud.master = cloud.machine("master")
    cloud.workers = [cloud.machine("worker") for _ in range(4)]
    for _ in range(5):
        cloud.observation("in service")
    cloud.group = cloud.physical_id("WorkerGroup")
    return cloud


def set_health(cloud, instance_id, status, **options):
    """Call SetInstanceHealth as the master does."""
    cloud.client("autoscaling", cloud.master).set_instance_health(
        InstanceId=instance_id, HealthStatus=status, **options
    )


def describe(cloud, instance_id):
    """Return (lifecycle state, health) of an instance, None when its group has it no more."""
    answer = cloud.client("autoscaling").describe_auto_scaling_instances(InstanceIds=[instance_id])
    return next(((row["LifecycleState"], row["HealthStatus"]) for row in answer["AutoScalingInstances"]), None)


def follow_replacement(cloud, victim):
    """Wait until a victim has ended and another instance is in service; return the two activities."""
    assert cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] == victim["instance_id"]
    successor = cloud.machine(victim["tags"]["deeplearning:role"])
    cloud.observation("in service")
    cloud.workers = [entry for entry in cloud.workers if entry != victim] + [successor]
    activities = cloud.client("autoscaling").describe_scaling_activities()["Activities"]
    ended = next(row for row in activities if row["Description"].endswith(victim["instance_id"]))
    begun = next(row for row in activities if row["Description"].endswith(successor["instance_id"]))
    return ended, begun


@pytest.mark.fault(45, 58)
def test_replaces_an_instance_that_a_node_reports_unhealthy_and_records_who_called(cloud):
    victim = cloud.workers[0]
    before = cloud.command("report")["calls"]
    set_health(cloud, victim["instance_id"], "Unhealthy", ShouldRespectGracePeriod=False)
    ended, begun = follow_replacement(cloud, victim)

    assert ended["Cause"].endswith(f"Z {USER}")
    assert ended["Description"] == f"Terminating EC2 instance: {victim['instance_id']}"
    assert begun["Cause"].endswith(
        "Z an instance was launched in response to an unhealthy instance needing to be replaced."
    )
    after = cloud.command("report")["calls"]
    operation, name = "autoscaling.SetInstanceHealth", cloud.master["instance_id"]
    assert after["by_operation"][operation] == before["by_operation"].get(operation, 0) + 1
    assert after["by_name"][name] == before["by_name"].get(name, 0) + 1


@pytest.mark.parametrize(("check", "cause"), [("stopped", STOPPED), ("impaired", IMPAIRED)])
@pytest.mark.fault(45)
def test_tells_which_check_of_ec2_an_instance_failed(cloud, check, cause):
    victim = cloud.workers[0]
    assert cloud.command("fail_instance", instance_id=victim["instance_id"], check=check) is True
    ended, _ = follow_replacement(cloud, victim)
    assert ended["Cause"].endswith(f"Z {cause}")
    assert cloud.command("fail_instance", instance_id=victim["instance_id"]) is False


def test_a_machine_that_is_off_stays_in_service_until_ec2_finds_it_dead(cloud):
    # Nothing but fail_instance tells the groups: the machine's host may have powered it off long before.
    victim = cloud.workers[0]
    assert describe(cloud, victim["instance_id"]) == ("InService", "Healthy")
    state = cloud.client("ec2").describe_instances(InstanceIds=[victim["instance_id"]])
    assert state["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"
    cloud.command("fail_instance", instance_id=victim["instance_id"])
    follow_replacement(cloud, victim)
    assert describe(cloud, victim["instance_id"]) is None


@pytest.mark.fault(10)
def test_keeps_an_unhealthy_instance_while_replacing_is_suspended_and_replaces_it_when_it_is_resumed(cloud):
    client = cloud.client("autoscaling", cloud.master)
    client.suspend_processes(AutoScalingGroupName=cloud.group, ScalingProcesses=["ReplaceUnhealthy"])
    kept, ended = cloud.workers[0], cloud.workers[1]["instance_id"]
    set_health(cloud, kept["instance_id"], "Unhealthy")
    # The end of a termination that was ordered later tells that the group had its time to react.
    client.terminate_instance_in_auto_scaling_group(InstanceId=ended, ShouldDecrementDesiredCapacity=True)
    assert cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] == ended
    assert describe(cloud, kept["instance_id"]) == ("InService", "Unhealthy")

    client.resume_processes(AutoScalingGroupName=cloud.group, ScalingProcesses=["ReplaceUnhealthy"])
    follow_replacement(cloud, kept)
    cloud.workers = [entry for entry in cloud.workers if entry["instance_id"] != ended]


def test_an_instance_can_be_healthy_again_while_replacing_is_suspended(cloud):
    client = cloud.client("autoscaling", cloud.master)
    client.suspend_processes(AutoScalingGroupName=cloud.group, ScalingProcesses=["ReplaceUnhealthy"])
    instance_id = cloud.workers[0]["instance_id"]
    set_health(cloud, instance_id, "Unhealthy")
    set_health(cloud, instance_id, "Healthy")
    client.resume_processes(AutoScalingGroupName=cloud.group)
    assert describe(cloud, instance_id) == ("InService", "Healthy")
    follow_replacement_of_another(cloud, instance_id)


def follow_replacement_of_another(cloud, spared):
    """Replace another instance, so that the group has had its time to react, and see the spared one stay."""
    victim = next(entry for entry in cloud.workers if entry["instance_id"] != spared)
    set_health(cloud, victim["instance_id"], "Unhealthy")
    follow_replacement(cloud, victim)
    assert describe(cloud, spared) == ("InService", "Healthy")


def test_a_suspended_health_check_silences_ec2_and_not_the_user(cloud):
    client = cloud.client("autoscaling", cloud.master)
    client.suspend_processes(AutoScalingGroupName=cloud.group, ScalingProcesses=["HealthCheck"])
    silenced = cloud.workers[0]
    cloud.command("fail_instance", instance_id=silenced["instance_id"])
    follow_replacement_of_another(cloud, silenced["instance_id"])
    client.resume_processes(AutoScalingGroupName=cloud.group)
    ended, _ = follow_replacement(cloud, silenced)
    assert ended["Cause"].endswith(STOPPED)


def test_a_grace_period_spares_whom_a_check_fails_and_not_whom_ec2_sees_stopped(cloud):
    master = cloud.master["instance_id"]
    set_health(cloud, master, "Unhealthy")
    cloud.command("fail_instance", instance_id=master, check="impaired")
    follow_replacement_of_another(cloud, master)

    cloud.command("fail_instance", instance_id=master, check="stopped")
    assert cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] == master
    cloud.master = cloud.machine("master")
    cloud.observation("in service")
    set_health(cloud, cloud.master["instance_id"], "Unhealthy", ShouldRespectGracePeriod=False)
    assert cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] == cloud.master["instance_id"]
    cloud.master = cloud.machine("master")
    cloud.observation("in service")


@pytest.mark.parametrize(
    ("instance_id", "status", "message"),
    [
        ("i-00000000000000000", "Unhealthy", "No managed instance found for instance ID: i-00000000000000000"),
        (None, "Sick", r"Valid instance health states are: \[Healthy, Unhealthy\]"),
    ],
)
def test_refuses_what_aws_refuses(cloud, instance_id, status, message):
    with pytest.raises(ClientError, match=message) as error:
        set_health(cloud, instance_id or cloud.workers[0]["instance_id"], status)
    assert error.value.response["Error"]["Code"] == "ValidationError"


@pytest.mark.fault(43)
def test_an_instance_that_dies_before_it_is_in_service_cancels_its_launch(start_cloud, asking_assembly):
    cloud = start_cloud(pace={"launch": 3600}, minute_seconds=3600)
    cloud.deploy(asking_assembly)
    cloud.ask("WorkerGroup", 1)  # once it is complete: a launch that fails before would undo the stack
    victim = cloud.machine("worker")
    cloud.command("fail_instance", instance_id=victim["instance_id"])
    assert cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] == victim["instance_id"]
    cloud.machine("worker")
    cloud.observation("EC2_INSTANCE_LAUNCH_ERROR")

    rows = cloud.client("autoscaling").describe_scaling_activities()["Activities"]
    (cancelled,) = [row for row in rows if victim["instance_id"] in row["Description"]]
    assert (cancelled["StatusCode"], cancelled["Progress"]) == ("Cancelled", 100)
    assert cancelled["StatusMessage"].startswith("Instance became unhealthy while waiting for instance to be in")
    assert "EndTime" in cancelled


def test_a_launch_ends_when_its_instance_is_terminated_before_it_is_in_service(start_cloud, asking_assembly):
    cloud = start_cloud(pace={"launch": 3600}, minute_seconds=3600)
    cloud.deploy(asking_assembly)
    cloud.ask("WorkerGroup", 1)  # once it is complete: a launch that fails before would undo the stack
    victim = cloud.machine("worker")["instance_id"]
    cloud.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=victim, ShouldDecrementDesiredCapacity=True
    )
    cloud.observation("terminated")
    rows = cloud.client("autoscaling").describe_scaling_activities(
        AutoScalingGroupName=cloud.physical_id("WorkerGroup")
    )["Activities"]
    assert sorted(row["StatusCode"] for row in rows) == ["Cancelled", "Successful"]
