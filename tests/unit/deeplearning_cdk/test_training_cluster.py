"""
What the template of a cluster promises.

Two defects of the predecessor cannot occur: nothing is written to the file system to remember a choice (D55), and no
conda environment of the image is touched (D66).
"""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import InstanceTypeFacts, JobEnvironment, NodeImage, TrainingCluster
from deeplearning_contract.names import NodeRole

ROLES = tuple(NodeRole)
GROUP = "AWS::AutoScaling::AutoScalingGroup"


# --- Groups -------------------------------------------------------------------------------------------


@pytest.mark.fault(2, 67)
@pytest.mark.defect("D21")
@pytest.mark.parametrize("role", ROLES)
def test_groups_have_a_minimum_of_zero_and_keep_an_adjusted_capacity(synthesize: Any, role: NodeRole) -> None:
    group = synthesize().group(role)
    assert group["Properties"]["MinSize"] == "0"
    assert group["UpdatePolicy"] == {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}}
    assert "CreationPolicy" not in group


@pytest.mark.parametrize(
    ("props", "desired", "most"),
    [
        ({}, "3", "3"),
        ({"worker_desired_capacity": 0}, "0", "0"),
        ({"worker_desired_capacity": 1}, "1", "1"),
        ({"worker_desired_capacity": 40}, "40", "40"),
        ({"worker_desired_capacity": 2, "worker_max_capacity": 8}, "2", "8"),
        ({"worker_min_capacity": 5}, "5", "5"),
        ({"worker_max_capacity": 2}, "2", "2"),
    ],
)
def test_d67_workers_have_the_capacity_asked_for_and_may_grow(
    synthesize: Any, props: dict[str, int], desired: str, most: str
) -> None:
    synthesis = synthesize(**props)
    workers = synthesis.group(NodeRole.WORKER)["Properties"]
    assert (_request(synthesis)["Workers"], workers["MaxSize"]) == (desired, most)


@pytest.mark.fault(12)
@pytest.mark.parametrize(
    ("props", "fewest"), [({}, "1"), ({"worker_desired_capacity": 0}, "0"), ({"worker_min_capacity": 2}, "2")]
)
def test_adjuster_holds_the_users_minimum(synthesize: Any, props: dict[str, int], fewest: str) -> None:
    variables = synthesize(**props).part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]["Environment"][
        "Variables"
    ]
    assert variables["DEEPLEARNING_WORKER_MIN_CAPACITY"] == fewest


def test_there_is_one_master_however_many_workers(synthesize: Any) -> None:
    synthesis = synthesize(worker_desired_capacity=40)
    assert (_request(synthesis)["Master"], synthesis.group(NodeRole.MASTER)["Properties"]["MaxSize"]) == ("1", "1")


def _request(synthesis: Any) -> Any:
    (request,) = (r for r in synthesis.template["Resources"].values() if r["Type"] == "Custom::RequestedCapacity")
    return request["Properties"]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("workers", [0, 3])
def test_no_group_asks_for_capacity_by_itself(synthesize: Any, role: NodeRole, workers: int) -> None:
    """
    A group is complete for CloudFormation "when the desired capacity is reached", by default its minimum.

    (`AWS::AutoScaling::AutoScalingGroup`, `DesiredCapacity`.) A literal 0 would be set again where CloudFormation reads
    `IgnoreUnmodifiedGroupSizeProperties` for all sizes together, and by the rollback of an update, in which it "is
    ignored" (`UpdatePolicy`); what is left out "will remain untouched" (aws/aws-cdk#5507).
    """
    properties = synthesize(worker_desired_capacity=workers).group(role)["Properties"]
    assert "DesiredCapacity" not in properties
    assert properties["MinSize"] == "0"
    assert {"Key": "deeplearning:candidate", "PropagateAtLaunch": True, "Value": "0"} in properties["Tags"]


def test_the_groups_are_made_one_after_the_other(synthesize: Any) -> None:
    """In a fresh account two at once race for the service-linked role: it "has been taken in this account"."""
    synthesis = synthesize()
    assert synthesis.group_id(NodeRole.MASTER) in synthesis.group(NodeRole.WORKER)["DependsOn"]


def test_capacity_is_asked_for_when_all_that_nodes_need_is_there_and_the_wait_needs_no_group(synthesize: Any) -> None:
    synthesis = synthesize()
    resources = synthesis.template["Resources"]
    (request,) = (r for r in resources.values() if r["Type"] == "Custom::RequestedCapacity")
    (wait,) = (r for r in resources.values() if r["Type"] == "AWS::CloudFormation::WaitCondition")
    groups = {synthesis.group_id(role) for role in ROLES}
    function = request["Properties"]["ServiceToken"]["Fn::GetAtt"][0]
    assert function.startswith("ClusterCapacityAdjusterFunction")
    assert groups <= set(request["DependsOn"])
    for role in ROLES:
        assert set(synthesis.group(role)["DependsOn"]) - groups <= {*request["DependsOn"], function}
    assert not groups & set(wait["DependsOn"])


@pytest.mark.parametrize("role", ROLES)
def test_groups_tell_the_topic_of_launches_terminations_and_their_errors(synthesize: Any, role: NodeRole) -> None:
    (notification,) = synthesize().group(role)["Properties"]["NotificationConfigurations"]
    assert notification["NotificationTypes"] == [
        f"autoscaling:EC2_INSTANCE_{event}" for event in ("LAUNCH", "LAUNCH_ERROR", "TERMINATE", "TERMINATE_ERROR")
    ]


@pytest.mark.fault(25)
@pytest.mark.parametrize("role", ROLES)
def test_d14_role_is_a_tag_even_under_a_misleading_stack_name(synthesize: Any, role: NodeRole) -> None:
    synthesis = synthesize(stack_name="master-WorkerAutoScalingGroup")
    tags = {tag["Key"]: tag for tag in synthesis.group(role)["Properties"]["Tags"]}
    assert tags["deeplearning:role"]["Value"] == role.value
    assert tags["deeplearning:cluster"]["Value"].startswith("master-WorkerAutoScalingGroup-")
    assert all(tag["PropagateAtLaunch"] for tag in tags.values())
    assert synthesis.settings(role).role is role


def test_d24_two_clusters_of_one_stack_have_different_names(make_stack: Callable[..., cdk.Stack]) -> None:
    stack = make_stack()
    assert TrainingCluster(stack, "First").cluster_name != TrainingCluster(stack, "Second").cluster_name


def test_d48_every_group_uses_a_launch_template_and_none_a_launch_configuration(synthesize: Any) -> None:
    synthesis = synthesize()
    assert not synthesis.of_type("AWS::AutoScaling::LaunchConfiguration")
    assert all("LaunchTemplate" in group["Properties"] for group in synthesis.of_type(GROUP).values())


@pytest.mark.parametrize("role", ROLES)
def test_instances_ask_for_imdsv2_with_one_hop_and_read_their_tags(synthesize: Any, role: NodeRole) -> None:
    assert synthesize().launch_data(role)["MetadataOptions"] == {
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
        "InstanceMetadataTags": "enabled",
    }


@pytest.mark.parametrize(
    ("image", "device"), [(None, "/dev/sda1"), (NodeImage.deep_learning_amazon_linux(), "/dev/xvda")]
)
def test_d50_d64_root_volume_is_encrypted_gp3_on_the_images_device(synthesize: Any, image: Any, device: str) -> None:
    synthesis = synthesize(image=image, volume_size=cdk.Size.gibibytes(500))
    (volume,) = synthesis.launch_data(NodeRole.WORKER)["BlockDeviceMappings"]
    (key,) = synthesis.of_type("AWS::KMS::Key")
    assert volume == {
        "DeviceName": device,
        "Ebs": {
            "DeleteOnTermination": True,
            "Encrypted": True,
            "KmsKeyId": {"Fn::GetAtt": [key, "Arn"]},
            "VolumeSize": 500,
            "VolumeType": "gp3",
        },
    }


@pytest.mark.fault(10)
def test_all_nodes_live_in_one_subnet_of_one_zone(synthesize: Any) -> None:
    synthesis = synthesize(availability_zone="us-east-1b", region="us-east-1")
    zones = {subnet["Properties"]["AvailabilityZone"] for subnet in synthesis.of_type("AWS::EC2::Subnet").values()}
    assert zones == {"us-east-1b"}
    subnets = [json.dumps(group["Properties"]["VPCZoneIdentifier"]) for group in synthesis.of_type(GROUP).values()]
    assert len(set(subnets)) == 1
    # A group of one subnet has nothing to rebalance.
    assert len(json.loads(subnets[0])) == 1


# --- Order of creation --------------------------------------------------------------------------------


@pytest.mark.fault(19)
@pytest.mark.parametrize("role", ROLES)
def test_d49_groups_come_after_everything_that_their_nodes_need(synthesize: Any, role: NodeRole) -> None:
    synthesis = synthesize()
    before = synthesis.before(synthesis.group_id(role))
    for kind in (
        "AWS::EC2::Route",
        "AWS::EC2::SubnetRouteTableAssociation",
        "AWS::EC2::NatGateway",
        "AWS::EC2::VPCGatewayAttachment",
        "AWS::EC2::VPCEndpoint",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EFS::MountTarget",
        "AWS::IAM::Role",
        "AWS::IAM::ManagedPolicy",
        "AWS::KMS::Key",
        "AWS::Lambda::Permission",
        "AWS::SNS::Subscription",
        "AWS::SNS::TopicPolicy",
        "AWS::Events::Rule",
        "AWS::SQS::Queue",
        "AWS::SQS::QueuePolicy",
        "AWS::DynamoDB::Table",
    ):
        beside = re.compile("Monitoring|ImagePin|FlowLog|Backup")
        found = {name for name in synthesis.of_type(kind) if not beside.search(name)}
        assert found, kind
        assert found <= before, kind


def test_d68_no_group_waits_for_the_nodes_of_another(synthesize: Any) -> None:
    """They are made one after the other and empty, and asked for their nodes together."""
    synthesis = synthesize()
    request = set(synthesis.of_type("Custom::RequestedCapacity"))
    for role in ROLES:
        assert not request & synthesis.before(synthesis.group_id(role))


def test_d43_wait_starts_with_the_groups_and_never_waits_for_them(synthesize: Any) -> None:
    synthesis = synthesize()
    (wait,) = synthesis.of_type("AWS::CloudFormation::WaitCondition")
    before = synthesis.before(wait)
    assert not set(synthesis.of_type(GROUP)) & before
    needs = {name for role in ROLES for name in synthesis.group(role)["DependsOn"]}
    assert needs - set(synthesis.of_type(GROUP)) <= before


def test_nothing_depends_on_itself(synthesize: Any) -> None:
    synthesis = synthesize(image=NodeImage.deep_learning_amazon_linux())
    assert not [name for name in synthesis.template["Resources"] if name in synthesis.before(name)]


@pytest.mark.fault(63)
def test_wait_ends_with_the_setup_timeout_and_nodes_stop_before_it(synthesize: Any) -> None:
    synthesis = synthesize(setup_timeout=cdk.Duration.minutes(20))
    wait = synthesis.only("AWS::CloudFormation::WaitCondition")
    assert (wait["Timeout"], wait["Count"]) == ("1200", 1)
    assert 0 < synthesis.settings(NodeRole.MASTER).setup_seconds < 1200


def test_grants_of_users_come_before_the_nodes(make_stack: Callable[..., cdk.Stack], read_stack: Any) -> None:
    stack = make_stack()
    s3.Bucket(stack, "Data").grant_read(TrainingCluster(stack, "Cluster"))
    synthesis = read_stack(stack)
    granted = {name for name in synthesis.of_type("AWS::IAM::ManagedPolicy") if "Grants" in name}
    assert len(granted) == len(ROLES)
    for role in ROLES:
        assert granted <= synthesis.before(synthesis.group_id(role))


# --- What users do with a cluster ---------------------------------------------------------------------


def test_grant_to_the_cluster_reaches_both_roles(make_stack: Callable[..., cdk.Stack], read_stack: Any) -> None:
    stack = make_stack()
    cluster = TrainingCluster(stack, "Cluster")
    s3.Bucket(stack, "Data").grant_read(cluster)
    s3.Bucket(stack, "More").grant_read(cluster)
    synthesis = read_stack(stack)
    assert not synthesis.of_type("AWS::IAM::Policy")
    for part in ("MasterRole", "WorkerRole"):
        (granted,) = (policy for policy in synthesis.policies(part) if "s3:GetObject*" in json.dumps(policy))
        assert re.findall(r'"(Data|More)[0-9A-F]{8}"', json.dumps(granted)) == ["Data", "Data", "More", "More"]


def test_grant_to_one_node_group_reaches_its_role_alone(make_stack: Callable[..., cdk.Stack], read_stack: Any) -> None:
    stack = make_stack()
    s3.Bucket(stack, "Data").grant_write(TrainingCluster(stack, "Cluster").master)
    (policy,) = read_stack(stack).of_type("AWS::IAM::Policy").values()
    assert "MasterRole" in policy["Properties"]["Roles"][0]["Ref"]


def test_resource_policy_names_both_roles(make_stack: Callable[..., cdk.Stack], read_stack: Any) -> None:
    stack = make_stack()
    cluster = TrainingCluster(stack, "Cluster")
    bucket = s3.Bucket(stack, "Data")
    bucket.add_to_resource_policy(
        cdk.aws_iam.PolicyStatement(
            actions=["s3:GetObject"], resources=[bucket.arn_for_objects("*")], principals=[cluster.grant_principal]
        )
    )
    (statement,) = read_stack(stack).only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert len(statement["Principal"]["AWS"]) == 2


def test_connections_of_the_cluster_are_those_of_every_node(
    make_stack: Callable[..., cdk.Stack], read_stack: Any
) -> None:
    stack = make_stack()
    cluster = TrainingCluster(stack, "Cluster")
    cluster.connections.allow_from(ec2.Peer.ipv4("192.0.2.0/24"), ec2.Port.tcp(8265))
    nodes = read_stack(stack).part("AWS::EC2::SecurityGroup", "NodesSecurityGroup")
    assert nodes["Properties"]["SecurityGroupIngress"][0]["FromPort"] == 8265


def test_file_system_admits_other_clients_by_its_connections(
    make_stack: Callable[..., cdk.Stack], read_stack: Any
) -> None:
    stack = make_stack()
    cluster = TrainingCluster(stack, "Cluster")
    other = ec2.SecurityGroup(stack, "Other", vpc=cluster.network.vpc)
    cluster.file_system.connections.allow_default_port_from(other)
    rules = read_stack(stack).of_type("AWS::EC2::SecurityGroupIngress").values()
    assert sum(rule["Properties"].get("FromPort") == 2049 for rule in rules) == 2


def test_metrics_are_of_the_group(make_stack: Callable[..., cdk.Stack]) -> None:
    stack = make_stack()
    workers = TrainingCluster(stack, "Cluster").workers
    for metric in (workers.metric_cpu_utilization(), workers.metric_network_in(), workers.metric_network_out()):
        assert metric.namespace == "AWS/EC2"
        assert stack.resolve(metric.dimensions["AutoScalingGroupName"]) == stack.resolve(workers.group.ref)


def test_d67_commands_say_how_to_log_in(make_stack: Callable[..., cdk.Stack]) -> None:
    stack = make_stack(region="eu-west-1")
    quiet = TrainingCluster(stack, "Quiet")
    assert quiet.session_command.startswith("aws ssm start-session --region eu-west-1 --target $(aws ec2 ")
    assert f"Values={quiet.cluster_name} " in quiet.session_command
    assert quiet.ssh_command is None
    open_ = TrainingCluster(stack, "Open", ssh_peer="203.0.113.7/32", key_pair="mine")
    assert open_.ssh_command is not None
    assert open_.ssh_command.startswith("ssh ubuntu@$(aws ec2 ")
    assert "PublicIpAddress" in open_.ssh_command


def test_tag_key_that_would_fail_every_launch_is_refused(make_stack: Callable[..., cdk.Stack], read_stack: Any) -> None:
    stack = make_stack()
    cdk.Tags.of(TrainingCluster(stack, "Cluster")).add("team/name", "vision")
    with pytest.raises(RuntimeError, match="got 'team/name'; rename the tag"):
        read_stack(stack)


def test_other_tags_of_users_reach_the_instances(make_stack: Callable[..., cdk.Stack], read_stack: Any) -> None:
    stack = make_stack()
    cdk.Tags.of(TrainingCluster(stack, "Cluster")).add("team:name", "vision")
    tags = read_stack(stack).group(NodeRole.WORKER)["Properties"]["Tags"]
    assert {"Key": "team:name", "PropagateAtLaunch": True, "Value": "vision"} in tags


# --- Images and instance types ------------------------------------------------------------------------


def _image_parameter(synthesis: Any) -> str:
    pin, attribute = synthesis.launch_data(NodeRole.WORKER)["ImageId"]["Fn::GetAtt"]
    assert attribute == "ImageId"
    return str(synthesis.template["Resources"][pin]["Properties"]["Parameter"])


@pytest.mark.parametrize(
    ("instance_type", "parameter"),
    [
        ("m5.large", "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"),
        ("c7g.large", "/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id"),
        ("p3dn.24xlarge", "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"),
        (
            "p5.48xlarge",
            "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04/latest/ami-id",
        ),
        (
            "g5g.xlarge",
            "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
        ),
    ],
)
def test_default_image_follows_the_family(synthesize: Any, instance_type: str, parameter: str) -> None:
    synthesis = synthesize(worker_instance_type=instance_type, environment=JobEnvironment.none())
    assert _image_parameter(synthesis) == parameter


def test_p3_gets_the_proprietary_driver_and_a_warning_that_it_was_not_tried(synthesize: Any) -> None:
    synthesis = synthesize(worker_instance_type="p3dn.24xlarge")
    packages = synthesis.settings(NodeRole.WORKER).packages["nvidia-smi"]
    assert "nvidia-headless-580-server" in packages
    # The driver is compiled at boot, for the kernel that runs and not for the archive's newest.
    assert "linux-headers-{kernel}" in packages
    assert [text for text in synthesis.warnings if "not tried on AWS" in text]


@pytest.mark.parametrize("name", ["p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p2.xlarge", "g3.4xlarge"])
def test_retired_type_is_taken_with_a_warning_that_names_its_successor(synthesize: Any, name: str) -> None:
    synthesis = synthesize(worker_instance_type=name, environment=JobEnvironment.none())
    assert synthesis.launch_data(NodeRole.WORKER)["InstanceType"] == name
    assert [text for text in synthesis.warnings if f"AWS has retired {name}" in text and "; take " in text]


def test_type_that_a_region_did_not_offer_is_warned_about(synthesize: Any) -> None:
    assert [t for t in synthesize(region="eu-north-1").warnings if "p3dn.24xlarge was not offered in eu-north-1" in t]
    assert not [t for t in synthesize(region="us-east-1").warnings if "was not offered" in t]


def test_cpu_cluster_warns_of_nothing_and_expects_no_gpu(synthesize: Any) -> None:
    synthesis = synthesize(worker_instance_type="m5.large", region="us-east-1")
    assert synthesis.warnings == []
    assert synthesis.settings(NodeRole.WORKER).expected_gpu_count == 0


def test_type_newer_than_the_catalogue_is_taken_when_described(synthesize: Any) -> None:
    newer = InstanceTypeFacts(name="p9.48xlarge", gpu_count=16, network_cards=2, efa_cards=(0, 1))
    synthesis = synthesize(worker_instance_type=newer, image=NodeImage.deep_learning_ubuntu())
    assert synthesis.launch_data(NodeRole.MASTER)["InstanceType"] == "p9.48xlarge"
    assert synthesis.settings(NodeRole.WORKER).expected_gpu_count == 16


def test_master_has_the_workers_type_unless_told_otherwise(synthesize: Any) -> None:
    assert synthesize(worker_instance_type="m5.large").launch_data(NodeRole.MASTER)["InstanceType"] == "m5.large"
    mixed = synthesize(worker_instance_type="p5.48xlarge", master_instance_type="m5.large")
    assert mixed.launch_data(NodeRole.MASTER)["InstanceType"] == "m5.large"
    assert "pytorch" in _image_parameter(mixed)


@pytest.mark.parametrize(
    ("instance_type", "is_placed"),
    [("p5.48xlarge", True), ("t3.micro", False), ("m5.large", False)],
)
def test_d60_only_types_that_gain_by_it_are_placed_together(
    synthesize: Any, instance_type: str, *, is_placed: bool
) -> None:
    synthesis = synthesize(worker_instance_type=instance_type)
    assert bool(synthesis.of_type("AWS::EC2::PlacementGroup")) is is_placed
    assert ("PlacementGroup" in synthesis.group(NodeRole.WORKER)["Properties"]) is is_placed


def test_amazon_linux_mounts_with_iam_and_tls_through_an_access_point(synthesize: Any) -> None:
    synthesis = synthesize(image=NodeImage.deep_learning_amazon_linux(), worker_instance_type="g5.12xlarge")
    settings = synthesis.settings(NodeRole.WORKER)
    (access_point,) = synthesis.of_type("AWS::EFS::AccessPoint")
    assert settings.file_system.kind == "efs"
    assert settings.file_system.options == f"tls,iam,accesspoint=<{access_point}>"
    # Without CreationInfo EFS makes no root directory, and every mount fails (EFS API, RootDirectory).
    owner = {"OwnerUid": "1000", "OwnerGid": "1000", "Permissions": "0755"}
    assert synthesis.only("AWS::EFS::AccessPoint")["RootDirectory"] == {"Path": "/deeplearning", "CreationInfo": owner}
    assert synthesis.only("AWS::EFS::AccessPoint")["PosixUser"] == {"Uid": "1000", "Gid": "1000"}
    assert settings.login_user == "ec2-user"
    assert '"/opt/pytorch/bin/python" ' in synthesis.user_data(NodeRole.WORKER)
    [statement] = synthesis.only("AWS::EFS::FileSystem")["FileSystemPolicy"]["Statement"]
    assert statement["Effect"] == "Deny"
    assert "Resource" not in statement


def test_d54_ubuntu_mounts_plain_nfs_at_the_regions_own_domain(synthesize: Any) -> None:
    synthesis = synthesize()
    (file_system,) = synthesis.of_type("AWS::EFS::FileSystem")
    settings = synthesis.settings(NodeRole.MASTER).file_system
    assert (settings.kind, settings.mount_point) == ("nfs4", "/efs")
    assert settings.source == f"<{file_system}>.efs.<AWS::Region>.<AWS::URLSuffix>:/"
    assert not synthesis.of_type("AWS::EFS::AccessPoint")


# --- User data ----------------------------------------------------------------------------------------


def test_only_the_master_holds_the_signal_url_and_whom_to_believe(synthesize: Any) -> None:
    master, worker = (synthesize().settings(role) for role in ROLES)
    assert master.signal_url.startswith("<ClusterCoordinationFormationHandle")
    assert re.fullmatch(r"<ClusterNodesWorkerRole[0-9A-F]{8}\.RoleId>", master.report_sender)
    assert (worker.signal_url, worker.report_sender) == ("", "")


def test_scripts_of_users_are_assets_with_their_digest(synthesize: Any, tmp_path: Path) -> None:
    setup, run = tmp_path / "setup.sh", tmp_path / "run.sh"
    setup.write_text("#!/bin/bash\ntrue\n")
    run.write_text("#!/bin/bash\nfalse\n")
    synthesis = synthesize(setup_script=str(setup), run_script=str(run))
    master, worker = (synthesis.settings(role) for role in ROLES)
    assert master.setup_script == worker.setup_script
    assert master.run_script is not None
    assert master.run_script.sha256 == hashlib.sha256(run.read_bytes()).hexdigest()
    assert worker.run_script is None


# --- File system --------------------------------------------------------------------------------------


@pytest.mark.parametrize("file_system_id", ["fs-0123abcd", "fs-0123456789abcdef0"])
def test_d52_existing_file_system_is_taken_by_its_id(synthesize: Any, file_system_id: str) -> None:
    synthesis = synthesize(file_system_id=file_system_id)
    assert not synthesis.of_type("AWS::EFS::FileSystem")
    assert synthesis.only("AWS::EFS::MountTarget")["FileSystemId"] == file_system_id
    assert synthesis.settings(NodeRole.MASTER).file_system.source.startswith(f"{file_system_id}.efs.")


def test_d53_existing_mount_target_is_used_when_its_group_is_given(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")
    TrainingCluster(stack, "Cluster", file_system_id="fs-0123abcd", mount_target_security_group=group)
    synthesis = read_stack(stack)
    assert not synthesis.of_type("AWS::EFS::MountTarget")
    rules = synthesis.of_type("AWS::EC2::SecurityGroupIngress").values()
    assert [r for r in rules if r["Properties"]["GroupId"] == "sg-0123456789abcdef0"]


@pytest.mark.fault(62, 66)
def test_d54_new_file_system_is_encrypted_elastic_and_kept_but_not_after_a_failed_creation(synthesize: Any) -> None:
    (entry,) = synthesize().of_type("AWS::EFS::FileSystem").values()
    assert entry["Properties"]["Encrypted"] is True
    assert entry["Properties"]["ThroughputMode"] == "elastic"
    assert (entry["DeletionPolicy"], entry["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


def test_file_system_goes_with_the_stack_when_asked(synthesize: Any) -> None:
    (entry,) = synthesize(removal_policy=cdk.RemovalPolicy.DESTROY).of_type("AWS::EFS::FileSystem").values()
    assert entry["DeletionPolicy"] == "Delete"


# --- Encryption and names -----------------------------------------------------------------------------


def test_d64_nothing_has_a_fixed_name(synthesize: Any) -> None:
    synthesis = synthesize()
    named = re.compile(r'"(Queue|Topic|Role|Table|Function|LogGroup|AutoScalingGroup|LaunchTemplate)Name": "')
    assert not named.search(json.dumps(synthesis.template["Resources"]).replace('"LogGroupName": {', ""))


@pytest.mark.fault(30, 31)
def test_d28_rings_of_workers_are_never_hidden_and_expire(synthesize: Any) -> None:
    queue = synthesize().part("AWS::SQS::Queue", "WorkerQueue")["Properties"]
    assert (queue["VisibilityTimeout"], queue["MessageRetentionPeriod"]) == (0, 300)
    assert "RedrivePolicy" not in queue


def test_d19_adjuster_runs_on_a_current_python_from_our_own_asset(synthesize: Any) -> None:
    function = synthesize().part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]
    assert function["Runtime"] == "python3.14"
    assert "ReservedConcurrentExecutions" not in function


def test_d63_nodes_fetch_nothing_but_our_own_assets(synthesize: Any) -> None:
    text = synthesize().user_data(NodeRole.WORKER)
    assert not re.search(r"curl|wget|pip install|git clone|apt-get|http://(?!169\.254)", text)


NEURON = NodeImage.from_ssm_parameter("/team/neuron", login_user="ubuntu")


@pytest.mark.parametrize(
    ("types", "leads"),
    [
        ({"worker_instance_type": "g5.12xlarge", "master_instance_type": "m5.large"}, True),
        ({"worker_instance_type": "trn1.32xlarge", "master_instance_type": "m5.large", "image": NEURON}, True),
        ({"worker_instance_type": "g5.12xlarge"}, False),
        ({"worker_instance_type": "g5.12xlarge", "master_instance_type": "g5.xlarge"}, False),
        ({"worker_instance_type": "m5.large", "master_instance_type": "g5.xlarge"}, False),
        ({"worker_instance_type": "m5.large"}, False),
    ],
)
def test_a_master_without_the_workers_accelerators_leads_and_does_not_train(
    synthesize: Any, types: dict[str, Any], *, leads: bool
) -> None:
    synthesis = synthesize(**types)
    assert {synthesis.settings(role).needs.has_head_node for role in NodeRole} == {leads}


def test_workers_are_near_each_other_without_a_master_that_does_not_train(synthesize: Any) -> None:
    synthesis = synthesize(worker_instance_type="g5.12xlarge", master_instance_type="m5.large")
    assert "PlacementGroup" in synthesis.group(NodeRole.WORKER)["Properties"]
    assert "PlacementGroup" not in synthesis.group(NodeRole.MASTER)["Properties"]


def test_a_master_without_gpus_installs_no_driver(synthesize: Any) -> None:
    synthesis = synthesize(worker_instance_type="p3dn.24xlarge", master_instance_type="m5.large")
    assert "nvidia-smi" in synthesis.settings(NodeRole.WORKER).packages
    assert "nvidia-smi" not in synthesis.settings(NodeRole.MASTER).packages
