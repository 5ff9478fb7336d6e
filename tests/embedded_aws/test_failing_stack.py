"""Stacks that fail: launch faults, failure signals, time-outs, groups that do not stabilize, and refusals."""

import json

import pytest
from botocore.exceptions import ClientError

WORKER = {"deeplearning:role": "worker"}


@pytest.fixture
def deploy(deploy_template, sample_template):
    """Return a function that deploys the sample with other sizes of its group of workers, and a fault of launches."""

    def start(sizes, fault):
        properties = sample_template["Resources"]["WorkerGroup"]["Properties"]
        del properties["DesiredCapacity"]
        properties.update(sizes)
        return deploy_template(sample_template, faults=[fault], pace={"retries": [3600]})

    return start


def test_a_launch_fault_becomes_an_activity_an_event_and_a_retry_and_a_failure_signal_rolls_back(
    start_cloud, telling_assembly
):
    fault = {"code": "InsufficientInstanceCapacity", "tags": WORKER, "ordinals": [2]}
    cloud = start_cloud(faults=[fault], pace={"retries": [0.3], "failure": 0.2})
    cloud.deploy(telling_assembly)
    cloud.ask("MasterGroup", 1)
    cloud.ask("WorkerGroup", 2)
    cloud.observation("launch failed: InsufficientInstanceCapacity")
    machines = [cloud.machine("master"), cloud.machine("worker"), cloud.machine("worker")]
    cloud.observation("sns → ")

    group = cloud.physical_id("WorkerGroup")
    activities = cloud.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    failed = [entry for entry in activities if entry["StatusCode"] == "Failed"]
    assert len(failed) == 1
    assert failed[0]["StatusMessage"].startswith("We currently do not have sufficient c5.large capacity")
    assert failed[0]["StatusMessage"].endswith("Launching EC2 instance failed.")
    assert failed[0]["Description"].startswith("Launching a new EC2 instance.  Status Reason: We currently")
    events = {}
    while "autoscaling:EC2_INSTANCE_LAUNCH_ERROR" not in events:
        messages = cloud.receive(cloud.physical_id("FunctionQueue"), MaxNumberOfMessages=10)
        events |= {body["kind"]: body for body in (json.loads(entry["Body"]) for entry in messages)}
    assert events["autoscaling:EC2_INSTANCE_LAUNCH_ERROR"]["status"] == failed[0]["StatusMessage"]

    body = {"Status": "FAILURE", "Reason": "too few workers", "UniqueId": "sample", "Data": ""}
    assert cloud.put_signal(cloud.physical_id("Handle"), json.dumps(body).encode()) == 200
    outcome = cloud.end()

    reason = "WaitCondition received failed message: 'too few workers' for uniqueId: sample"
    assert (outcome["status"], outcome["reason"]) == ("ROLLBACK_COMPLETE", reason)
    described = cloud.client("cloudformation").describe_stack_events(StackName="sample")["StackEvents"]
    assert any(
        event["ResourceStatus"] == "CREATE_FAILED" and event["ResourceStatusReason"] == reason for event in described
    )
    ended = {cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] for _ in machines}
    assert ended == {machine["instance_id"] for machine in machines}
    assert cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []


def test_an_error_before_the_notifications_are_set_is_not_reported(start_cloud, asking_assembly):
    fault = {"code": "VcpuLimitExceeded", "tags": WORKER}
    cloud = start_cloud(faults=[fault], pace={"retries": [3600], "notification_gap": 3600})
    cloud.deploy(asking_assembly)
    cloud.ask("MasterGroup", 1)
    cloud.ask("WorkerGroup", 2)
    for _ in range(2):
        cloud.observation("launch failed: VcpuLimitExceeded")
    cloud.machine("master")
    cloud.observation("in service")

    assert cloud.seen("autoscaling:EC2_INSTANCE") == []
    report = cloud.command("report")
    assert report["invocations"] == []
    assert [entry["StatusCode"] for entry in report["activities"]].count("Failed") == 2


def test_a_wait_condition_without_signals_times_out(deploy_template, sample_template):
    sample_template["Resources"]["Formation"]["Properties"]["Timeout"] = "1"
    cloud = deploy_template(sample_template)
    outcome = cloud.end()

    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert outcome["reason"] == "WaitCondition timed out. Received 0 conditions when expecting 1"


def test_a_rollback_keeps_what_is_retained_and_nothing_else(deploy_template, sample_template):
    resources = sample_template["Resources"]
    resources["Formation"]["Properties"]["Timeout"] = "1"
    policies = {"Kept": "Retain", "KeptOnDeletion": "RetainExceptOnCreate", "Deleted": "Delete", "Silent": None}
    for name, policy in policies.items():
        chosen = {"DeletionPolicy": policy} if policy else {}
        resources[name] = {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": name}} | chosen
    resources["Formation"]["DependsOn"] = ["Subscription", "FileSystem", "Table", *policies]
    cloud = deploy_template(sample_template)
    outcome = cloud.end()

    ends = {entry["logical_id"]: (entry["status"], entry["reason"]) for entry in outcome["resources"]}
    retained = ("DELETE_SKIPPED", "DeletionPolicy is Retain")
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert {name for name, end in ends.items() if end == retained} == {"Kept", "FileSystem"}
    assert {ends[name] for name in ("KeptOnDeletion", "Deleted", "Silent")} == {("DELETE_COMPLETE", "")}
    assert ends["Table"] == ("DELETE_SKIPPED", "it ends with the lab")
    groups = cloud.client("logs").describe_log_groups()["logGroups"]
    assert {group["logGroupName"] for group in groups} & policies.keys() == {"Kept"}


@pytest.mark.parametrize("minimum", ["0", "2"])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("InsufficientInstanceCapacity", "We currently do not have sufficient c5.large capacity"),
        (
            "Client.VolumeLimitExceeded",
            "Instance became unhealthy while waiting for instance to be in InService state.",
        ),
    ],
)
def test_a_group_that_does_not_reach_its_desired_capacity_does_not_stabilize(deploy, minimum, code, reason):
    """The property's text: "marks … as successful … when the desired capacity is reached", whatever the minimum is."""
    cloud = deploy(
        {"MinSize": minimum, "DesiredCapacity": "3"},
        {"code": code, "tags": WORKER, "from_ordinal": 2},
    )
    outcome = cloud.end()

    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert outcome["reason"].startswith(f"Group did not stabilize. Last scaling activity: {reason}")


@pytest.mark.parametrize("sizes", [{"MinSize": "0"}, {"MinSize": "0", "DesiredCapacity": "0"}])
def test_a_group_without_desired_capacity_is_complete_and_its_launches_may_fail_later(deploy, sizes):
    """Without a desired capacity the default is the minimum (API reference of CreateAutoScalingGroup)."""
    cloud = deploy(sizes, {"code": "InsufficientInstanceCapacity", "tags": WORKER, "from_ordinal": 3})
    cloud.ask("WorkerGroup", 3)
    cloud.observation("launch failed: InsufficientInstanceCapacity")
    for _ in range(2):
        cloud.machine("worker")
    cloud.complete()


def test_a_function_without_permission_is_not_invoked(deploy_template, sample_template):
    del sample_template["Resources"]["TopicPermission"]
    sample_template["Resources"]["MasterGroup"]["DependsOn"].remove("TopicPermission")
    sample_template["Resources"]["WorkerGroup"]["DependsOn"].remove("TopicPermission")
    cloud = deploy_template(sample_template)
    cloud.observation("refused: its policy does not admit sns.amazonaws.com")

    invocations = cloud.command("report")["invocations"]
    assert {entry["attempt"] for entry in invocations} == {0}


def test_deploys_nothing_of_a_template_that_it_cannot_rehearse(deploy_template, sample_template):
    sample_template["Resources"]["Bucket"] = {"Type": "AWS::ECR::Repository"}
    sample_template["Resources"]["Queue"]["Properties"]["RedriveAllowPolicy"] = {}
    cloud = deploy_template(sample_template)

    assert "Bucket: type AWS::ECR::Repository" in cloud.answer
    assert "Queue: AWS::SQS::Queue property RedriveAllowPolicy" in cloud.answer
    assert cloud.command("report")["activities"] == []
    assert cloud.command("wait", seconds=0) == "a stack must have been deployed; call deploy first"


def test_a_subnet_smaller_than_28_is_refused_as_ec2_does(deploy_template, sample_template):
    """VPC user guide, "Subnet sizing for IPv4"; moto ends with an error of its own."""
    sample_template["Resources"]["Subnet"]["Properties"]["CidrBlock"] = "10.9.1.0/30"
    cloud = deploy_template(sample_template)
    outcome = cloud.end()
    assert outcome["reason"].endswith(
        "(InvalidSubnet.Range) when calling the CreateSubnet operation: The CIDR '10.9.1.0/30' is invalid."
    )


def test_a_security_group_of_a_vpc_that_does_not_exist_is_refused_as_ec2_does(deploy_template, sample_template):
    """EC2 API, "Error codes": `InvalidVpcID.NotFound`; moto makes the group."""
    sample_template["Resources"]["SecurityGroup"]["Properties"]["VpcId"] = "vpc-0123456789abcdef0"
    cloud = deploy_template(sample_template)
    assert "InvalidVpcID.NotFound" in cloud.end()["reason"]


def test_host_bits_of_a_block_are_removed(deploy_template, sample_template):
    """EC2 API, `CreateSubnet` and `CreateVpc`: "We modify the specified CIDR block to its canonical form"."""
    for name, block in (("Vpc", "10.9.0.7/16"), ("Subnet", "10.9.1.9/24")):
        sample_template["Resources"][name]["Properties"]["CidrBlock"] = block
    cloud = deploy_template(sample_template)
    assert cloud.machine("master")["address"].startswith("10.9.1.")
    (subnet,) = cloud.client("ec2").describe_subnets(SubnetIds=[cloud.physical_id("Subnet")])["Subnets"]
    assert subnet["CidrBlock"] == "10.9.1.0/24"


@pytest.mark.parametrize(
    ("service", "operation", "arguments"),
    [
        ("cloudwatch", "put_composite_alarm", {"AlarmName": "either", "AlarmRule": "TRUE"}),
        ("ec2", "list_images_in_recycle_bin", {}),
        ("ssm", "list_ops_metadata", {}),
    ],
)
def test_a_call_that_the_rehearsal_cannot_carry_out_names_the_rehearsal_and_not_aws(
    start_cloud, sample_assembly, service, operation, arguments
):
    cloud = start_cloud()
    cloud.deploy(sample_assembly)
    with pytest.raises(ClientError, match=r"the rehearsal could not carry out \S+, AWS may: ") as error:
        getattr(cloud.client(service), operation)(**arguments)
    assert error.value.response["Error"]["Code"] == "InternalFailure"


@pytest.mark.parametrize("protocol", ["tpc", "256", "any"])
def test_a_rule_of_an_unknown_protocol_fails_in_the_words_of_ec2(deploy_template, sample_template, protocol):
    """The words: hashicorp/terraform-provider-aws#1793."""
    sample_template["Resources"]["SecurityGroupSelf"]["Properties"]["IpProtocol"] = protocol
    outcome = deploy_template(sample_template).end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert f"Invalid value '{protocol}' for IP protocol. Unknown protocol." in outcome["reason"]
