"""A stack that forms: launches, messages, the function, queues and the success signal."""

import json

import pytest
from botocore.exceptions import ClientError


@pytest.fixture(scope="module")
def cloud(start_cloud, telling_assembly):
    """An embedded AWS in which the sample stack waits for its signal; its minute takes two seconds."""
    cloud = start_cloud(minute_seconds=2, retry_seconds=[0.05, 0.05])
    cloud.listing = cloud.deploy(telling_assembly, size=4)
    cloud.ask("MasterGroup", 1)
    cloud.master = cloud.machine("master")
    cloud.workers = [cloud.machine("worker") for _ in range(4)]
    for _ in range(5):
        cloud.observation("in service")
    return cloud


def test_lists_what_it_overrode_in_the_template(cloud):
    assert cloud.listing["overrides"] == {"WorkerGroup.DesiredCapacity": "4", "WorkerGroup.MaxSize": "4"}


def test_boots_each_instance_with_its_groups_role_address_and_user_data(cloud):
    machines = [cloud.master, *cloud.workers]

    assert len({machine["instance_id"] for machine in machines}) == 5
    assert len({machine["address"] for machine in machines}) == 5
    assert all(machine["address"].startswith("10.9.1.") for machine in machines)
    assert all(4 <= int(machine["address"].rsplit(".", 1)[1]) <= 254 for machine in machines)
    assert {machine["prefix_length"] for machine in machines} == {24}
    queue = cloud.physical_id("Queue")
    assert cloud.master["user_data"] == f"#!/bin/bash\necho master us-east-1 {queue} ${{literal}}\n"
    assert cloud.master["login_user"] == "ubuntu"
    assert list(cloud.master["mount_targets"]) == [cloud.physical_id("FileSystem")]
    assert cloud.master["mount_targets"][cloud.physical_id("FileSystem")] not in {m["address"] for m in machines}


def test_describes_groups_by_tag_with_pagination(cloud):
    client = cloud.client("autoscaling", cloud.master)
    pages = list(
        client.get_paginator("describe_auto_scaling_groups").paginate(
            Filters=[{"Name": "tag:deeplearning:cluster", "Values": ["sample"]}], PaginationConfig={"PageSize": 1}
        )
    )
    groups = [group for page in pages for group in page["AutoScalingGroups"]]

    assert len(pages) == 2
    assert sorted(len(group["Instances"]) for group in groups) == [1, 4]
    assert {entry["LifecycleState"] for group in groups for entry in group["Instances"]} == {"InService"}
    empty = client.describe_auto_scaling_groups(Filters=[{"Name": "tag:deeplearning:cluster", "Values": ["other"]}])
    assert empty["AutoScalingGroups"] == []


def test_gives_each_launch_an_activity_that_ended_well(cloud):
    group = cloud.physical_id("WorkerGroup")
    client = cloud.client("autoscaling", cloud.master)
    pages = client.get_paginator("describe_scaling_activities").paginate(
        AutoScalingGroupName=group, PaginationConfig={"PageSize": 3}
    )
    activities = [entry for page in pages for entry in page["Activities"]]

    assert [entry["StatusCode"] for entry in activities] == ["Successful"] * 4
    assert len({entry["ActivityId"] for entry in activities}) == 4
    assert {entry["Description"].removeprefix("Launching a new EC2 instance: ") for entry in activities} == {
        machine["instance_id"] for machine in cloud.workers
    }
    assert all(entry["EndTime"] >= entry["StartTime"] for entry in activities)
    assert all("changing the desired capacity from 0 to 4" in entry["Cause"] for entry in activities)
    starts = [entry["StartTime"] for entry in activities]
    assert starts == sorted(starts, reverse=True)


def test_invokes_the_function_for_messages_and_ticks_with_nothing_but_its_own_code(cloud):
    url = cloud.physical_id("FunctionQueue")
    seen = {}
    senders = set()
    while not {"autoscaling:EC2_INSTANCE_LAUNCH", "Scheduled Event", "autoscaling:TEST_NOTIFICATION"} <= set(seen):
        for message in cloud.receive(url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["SenderId"]):
            body = json.loads(message["Body"])
            seen[body["kind"]] = body
            senders.add(message["Attributes"]["SenderId"])

    assert seen["autoscaling:EC2_INSTANCE_LAUNCH"]["group"].startswith("sample-")
    assert not any(body["checkout"] for body in seen.values())
    assert 0 < seen["Scheduled Event"]["remaining"] <= 900_000
    function = cloud.physical_id("Function")
    role = cloud.client("iam").get_role(RoleName=cloud.physical_id("FunctionRole"))["Role"]["RoleId"]
    assert senders == {f"{role}:{function}"}


def test_retries_a_failed_asynchronous_invocation_twice(cloud):
    topic = cloud.physical_id("Topic")
    cloud.client("sns").publish(TopicArn=topic, Message=json.dumps({"Event": "broken", "Fail": True}))
    for _ in range(3):
        cloud.observation("RuntimeError: asked to fail")

    failed = [entry for entry in cloud.command("report")["invocations"] if "asked to fail" in entry["error"]]
    assert [entry["attempt"] for entry in failed] == [1, 2, 3]
    assert all("handling broken" in entry["log"] for entry in failed)


def test_names_the_sending_instance_in_a_messages_sender_id(cloud):
    worker = cloud.workers[0]
    url = cloud.physical_id("Queue")
    cloud.client("sqs", worker).send_message(QueueUrl=url, MessageBody="hello")
    (message,) = cloud.receive(url, cloud.master, MessageSystemAttributeNames=["SenderId"])

    role = cloud.client("iam").get_role(RoleName=cloud.physical_id("WorkerRole"))["Role"]
    assert role["RoleId"].startswith("AROA")
    assert message["Attributes"]["SenderId"] == f"{role['RoleId']}:{worker['instance_id']}"
    cloud.client("sqs", cloud.master).delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_counts_calls_by_operation_and_by_role_and_not_its_own(cloud):
    before = cloud.command("report")["calls"]
    cloud.client("dynamodb", cloud.master).list_tables()
    cloud.client("dynamodb", cloud.workers[0]).list_tables()
    cloud.client("dynamodb").list_tables()
    cloud.client("efs", cloud.workers[1]).describe_mount_targets(FileSystemId=cloud.physical_id("FileSystem"))
    cloud.client("s3", cloud.workers[1]).get_object(
        Bucket="cdk-hnb659fds-assets-123456789012-us-east-1", Key="sample-function.zip"
    )["Body"].read()
    after = cloud.command("report")["calls"]

    def grown(kind, name):
        return after[kind].get(name, 0) - before[kind].get(name, 0)

    assert grown("by_operation", "dynamodb.ListTables") == 2
    assert grown("by_operation", "elasticfilesystem.DescribeMountTargets") == 1
    assert grown("by_operation", "s3.GetObject") == 1
    assert grown("by_kind", "master") == 1
    assert grown("by_kind", "worker") == 3
    assert after["by_kind"]["lambda"] > 0
    assert after["total"] == sum(after["by_operation"].values()) == sum(after["by_kind"].values())


def test_denies_in_the_words_of_each_protocol_what_no_deployed_policy_allows(cloud):
    worker, url = cloud.workers[0], cloud.physical_id("Queue")
    calls = {
        "sqs:ReceiveMessage": ("AccessDenied", lambda: cloud.client("sqs", worker).receive_message(QueueUrl=url)),
        "sns:Publish": (
            "AuthorizationError",
            lambda: cloud.client("sns", worker).publish(TopicArn=cloud.physical_id("Topic"), Message="x"),
        ),
        "autoscaling:SetDesiredCapacity": (
            "AccessDenied",
            lambda: cloud.client("autoscaling", worker).set_desired_capacity(
                AutoScalingGroupName=cloud.physical_id("WorkerGroup"), DesiredCapacity=1
            ),
        ),
        "s3:ListBucket": (
            "AccessDenied",
            lambda: cloud.client("s3", worker).list_objects_v2(Bucket="cdk-hnb659fds-assets-123456789012-us-east-1"),
        ),
        "logs:CreateLogStream": (
            "AccessDeniedException",
            lambda: cloud.client("logs", worker).create_log_stream(logGroupName="x", logStreamName="y"),
        ),
    }
    for action, (code, call) in calls.items():
        with pytest.raises(ClientError) as error:
            call()
        assert error.value.response["Error"]["Code"] == code
        session = f"assumed-role/{cloud.physical_id('WorkerRole')}/{worker['instance_id']}"
        assert f"{session} is not authorized to perform: {action} on resource: " in str(error.value)
        assert f"because no identity-based policy allows the {action} action" in str(error.value)
    assert cloud.observation("is not authorized to perform: sns:Publish")["topic"] == "refusal"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
        ({"session_token": "wrong"}, "InvalidClientTokenId"),
        ({"access_key_id": "ASIAUNKNOWN"}, "InvalidClientTokenId"),
    ],
)
def test_refuses_calls_that_aws_would_not_authenticate(cloud, change, code):
    for service, operation in (("sqs", "list_queues"), ("s3", "list_buckets"), ("autoscaling", "describe_tags")):
        with pytest.raises(ClientError) as error:
            getattr(cloud.client(service, cloud.master | change), operation)()
        assert error.value.response["Error"]["Code"] == code
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_refuses_operations_that_it_does_not_implement(cloud):
    with pytest.raises(ClientError, match="the rehearsal does not implement autoscaling:DescribeTags"):
        cloud.client("autoscaling", cloud.master).describe_tags()
    with pytest.raises(ClientError, match=r"the rights that cloudformation\.SignalResource needs must be known"):
        cloud.client("cloudformation", cloud.master).signal_resource(
            StackName="sample", LogicalResourceId="Formation", UniqueId="x", Status="SUCCESS"
        )


def test_refuses_a_desired_capacity_outside_of_the_groups_sizes(cloud):
    client = cloud.client("autoscaling", cloud.master)
    group = cloud.physical_id("WorkerGroup")
    with pytest.raises(ClientError, match="New SetDesiredCapacity value 9 is above max value 4"):
        client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=9)
    with pytest.raises(ClientError, match="ValidationError"):
        client.set_desired_capacity(AutoScalingGroupName="nobody", DesiredCapacity=1)


def test_launches_nothing_while_launch_is_suspended(cloud):
    client = cloud.client("autoscaling", cloud.master)
    group = cloud.physical_id("MasterGroup")
    client.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=2)
    client.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch", "AZRebalance"])
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    described = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]
    assert {entry["ProcessName"] for entry in described["SuspendedProcesses"]} == {"Launch", "AZRebalance"}

    # The end of a termination that was ordered later tells that the group had its time to react.
    victim = cloud.workers[0]["instance_id"]
    client.terminate_instance_in_auto_scaling_group(InstanceId=victim, ShouldDecrementDesiredCapacity=True)
    assert cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] == victim
    cloud.observation("terminated")
    assert len(client.describe_scaling_activities(AutoScalingGroupName=group)["Activities"]) == 1

    client.resume_processes(AutoScalingGroupName=group)
    assert cloud.machine("master")["instance_id"] != cloud.master["instance_id"]
    cloud.observation("in service")
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    ended = cloud.next(lambda line: line["kind"] == "power_off")["instance_id"]
    cloud.observation("terminated")
    (left,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]["Instances"]
    assert left["InstanceId"] != ended


def test_scales_in_by_powering_an_instance_off(cloud):
    client = cloud.client("autoscaling", cloud.master)
    group = cloud.physical_id("WorkerGroup")
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    ended = cloud.next(lambda line: line["kind"] == "power_off")["instance_id"]
    cloud.observation("terminated")

    described = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]
    assert ended in {machine["instance_id"] for machine in cloud.workers}
    assert ended not in {entry["InstanceId"] for entry in described["Instances"]}
    newest = client.describe_scaling_activities(AutoScalingGroupName=group)["Activities"][0]
    assert newest["Description"] == f"Terminating EC2 instance: {ended}"


def test_replaces_an_instance_that_ec2_finds_dead(cloud):
    group = cloud.client("autoscaling").describe_auto_scaling_groups(
        AutoScalingGroupNames=[cloud.physical_id("MasterGroup")]
    )["AutoScalingGroups"][0]
    victim = group["Instances"][0]["InstanceId"]
    cloud.command("fail_instance", instance_id=victim)
    assert cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] == victim
    successor = cloud.machine("master")
    assert successor["instance_id"] != victim
    cloud.observation("in service")


def test_completes_only_on_a_signal_that_was_signed_for(cloud):
    url = cloud.physical_id("Handle")
    body = json.dumps({"Status": "SUCCESS", "Reason": "formed", "UniqueId": "sample", "Data": "3 nodes"}).encode()

    assert cloud.put_signal(url, body, "application/json") == 403
    assert cloud.put_signal(f"{url}0", body) == 403
    assert cloud.put_signal(url, b"not json") == 200  # S3 takes anything, CloudFormation ignores it
    assert cloud.command("wait", seconds=0)["status"] == "CREATE_IN_PROGRESS"
    assert cloud.put_signal(url, body) == 200
    assert cloud.put_signal(url, body.replace(b"3 nodes", b"another")) == 200
    outcome = cloud.end()

    assert (outcome["status"], outcome["reason"]) == ("CREATE_COMPLETE", "")
    assert json.loads(outcome["outputs"]["Verdict"]) == {"sample": "3 nodes"}
    assert {entry["status"] for entry in outcome["resources"]} == {"CREATE_COMPLETE"}
    stack = cloud.client("cloudformation").describe_stacks(StackName="sample")["Stacks"][0]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
