"""
Instances that EC2 ends before they are in service: their launches are cancelled, and tried again for ever.

A key that refuses is the common cause. The words are those of hashicorp/terraform-provider-aws#39904; the activity's
status `Cancelled` is that of the FAQ of public users of such groups ("EC2 Auto Scaling Group (ASG) *Cancelled*:
Launching a new EC2 instance: i-… Status Reason: Instance became unhealthy while waiting …").
"""

import pytest

WORKER = {"deeplearning:role": "worker"}

WAITED = "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: "
KEY_REFUSED = f"{WAITED}Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state"
ROLE = (
    "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/aws-service-role/autoscaling.amazonaws.com/"
    "AWSServiceRoleForAutoScaling"
)
IS_SCALING = {"StringEquals": {"aws:PrincipalArn": {"Fn::Sub": ROLE}}}
ACCOUNT = {
    "Effect": "Allow",
    "Principal": {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}},
    "Action": "kms:*",
    "Resource": "*",
}
DATA = {
    "Effect": "Allow",
    "Principal": "*",
    "Action": ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
    "Resource": "*",
    "Condition": IS_SCALING,
}
GRANT = {
    "Effect": "Allow",
    "Principal": "*",
    "Action": "kms:CreateGrant",
    "Resource": "*",
    "Condition": IS_SCALING | {"Bool": {"kms:GrantIsForAWSResource": "true"}},
}


@pytest.fixture
def deploy(deploy_template, sample_template):
    """Return a function that deploys the sample with a key of the workers' volumes."""

    def start(statements, **options):
        resources = sample_template["Resources"]
        del resources["WorkerGroup"]["Properties"]["DesiredCapacity"]
        policy = {"Version": "2012-10-17", "Statement": statements}
        resources["Key"] = {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": policy}}
        (disk,) = resources["WorkerTemplate"]["Properties"]["LaunchTemplateData"]["BlockDeviceMappings"]
        disk["Ebs"]["KmsKeyId"] = {"Fn::GetAtt": ["Key", "Arn"]}
        cloud = deploy_template(sample_template, **options)
        cloud.ask("WorkerGroup", 2)
        return cloud

    return start


def list_activities(cloud):
    group = cloud.physical_id("WorkerGroup")
    return cloud.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"]


def test_a_key_that_admits_the_service_linked_role_lets_nodes_launch(deploy):
    cloud = deploy([ACCOUNT, DATA, GRANT])
    cloud.machine("worker")
    cloud.observation("in service")
    assert "Cancelled" not in {entry["StatusCode"] for entry in list_activities(cloud)}


@pytest.mark.parametrize("statements", [[ACCOUNT], [ACCOUNT, DATA], [ACCOUNT, GRANT]])
def test_without_a_right_of_auto_scaling_each_launch_is_cancelled_the_instance_ended_and_the_next_tried(
    deploy, statements
):
    cloud = deploy(statements, pace={"retries": [0.05]})
    for _ in range(6):
        cloud.observation("launch failed: Client.InvalidKMSKey.InvalidState")

    activities = list_activities(cloud)
    cancelled = [entry for entry in activities if entry["StatusCode"] == "Cancelled"]
    assert len(cancelled) >= 6
    assert {entry["StatusMessage"] for entry in cancelled} == {KEY_REFUSED}
    first = cancelled[-1]
    instance = first["Description"].removeprefix("Launching a new EC2 instance: ").partition(".")[0]
    assert instance.startswith("i-")
    assert first["Description"] == f"Launching a new EC2 instance: {instance}.  Status Reason: {KEY_REFUSED}"
    (ended,) = (entry for entry in activities if entry["Description"] == f"Terminating EC2 instance: {instance}")
    assert "health check indicating it has been terminated or stopped" in ended["Cause"]
    assert cloud.seen("launched for worker") == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("Client.VolumeLimitExceeded", "Client.VolumeLimitExceeded: Volume limit exceeded"),
        ("Server.InternalError", "Server.InternalError: Internal error on launch"),
    ],
)
def test_an_instance_that_ec2_ends_for_another_reason_is_cancelled_in_its_words(
    start_cloud, asking_assembly, code, words
):
    cloud = start_cloud(faults=[{"code": code, "tags": WORKER, "ordinals": [1]}], pace={"retries": [0.05]})
    cloud.deploy(asking_assembly)
    cloud.ask("WorkerGroup", 2)
    cloud.observation(f"launch failed: {code}")
    for _ in range(2):
        cloud.machine("worker")
    cancelled = [entry for entry in list_activities(cloud) if entry["StatusCode"] == "Cancelled"]
    assert [entry["StatusMessage"] for entry in cancelled] == [f"{WAITED}{words}"]
