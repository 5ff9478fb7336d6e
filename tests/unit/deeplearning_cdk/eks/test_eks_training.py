"""A cluster on EKS: control plane, node groups, add-ons and the submission document."""

import json
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import DataSource, EksTraining, Network, Purchase, Storage
from deeplearning_cdk.catalog.instance_catalog import read_catalog
from deeplearning_cdk.coordination.payload import keep_file, pack_member
from deeplearning_cdk.eks import training
from deeplearning_cdk.eks.node_images import name_ami_type
from deeplearning_cdk.warnings import NEVER_STOPS, NO_ADMINISTRATOR
from deeplearning_contract import version
from deeplearning_contract.setting_parts import DataSettings
from tests.unit.deeplearning_cdk.conftest import read_submission, references, render
from tests.unit.deeplearning_cdk.eks.conftest import IMAGE, read_kubernetes

ROOT = Path(__file__).parents[4]
CPU = {"instance_type": "m5.xlarge"}
GROUP = "AWS::EKS::Nodegroup"


def _group(synthesis, part):
    return synthesis.part(GROUP, part)["Properties"]


def _launch(synthesis, part):
    return synthesis.part("AWS::EC2::LaunchTemplate", f"{part}Template")["Properties"]["LaunchTemplateData"]


# --- Control plane ------------------------------------------------------------------------------------


def test_api_server_is_reached_from_the_vpc_and_named_networks_alone_and_creation_gives_nobody_access(make):
    cluster = make().only("AWS::EKS::Cluster")
    network = cluster["ResourcesVpcConfig"]
    assert (network["EndpointPrivateAccess"], network["EndpointPublicAccess"]) == (True, False)
    assert "PublicAccessCidrs" not in network
    access = cluster["AccessConfig"]
    assert access == {"AuthenticationMode": "API", "BootstrapClusterCreatorAdminPermissions": False}
    assert (cluster["Version"], cluster["UpgradePolicy"]) == ("1.35", {"SupportType": "STANDARD"})
    # Its name is another one in each creation, because its logs stay.
    start, last = cluster["Name"]["Fn::Join"][1]
    assert re.fullmatch(r"Stack-[0-9a-f]{8}-", start)
    assert '{"Ref": "AWS::StackId"}' in json.dumps(last)
    named = ["54.240.193.130/32", "3.5.140.0/22"]
    network = make(api_from=named).only("AWS::EKS::Cluster")["ResourcesVpcConfig"]
    assert network["EndpointPrivateAccess"] is network["EndpointPublicAccess"] is True
    assert network["PublicAccessCidrs"] == named


def test_secrets_are_encrypted_with_the_key_and_all_logs_are_kept_for_a_time(make):
    synthesis = make()
    cluster = synthesis.only("AWS::EKS::Cluster")
    (key,) = synthesis.of_type("AWS::KMS::Key")
    (encryption,) = cluster["EncryptionConfig"]
    assert encryption == {"Provider": {"KeyArn": {"Fn::GetAtt": [key, "Arn"]}}, "Resources": ["secrets"]}
    kinds = {each["Type"] for each in cluster["Logging"]["ClusterLogging"]["EnabledTypes"]}
    assert kinds == {"api", "audit", "authenticator", "controllerManager", "scheduler"}
    logs = synthesis.part("AWS::Logs::LogGroup", "ControlPlaneLogs")["Properties"]
    assert render(logs["LogGroupName"]) == f"/aws/eks/{render(cluster['Name'])}/cluster"
    assert logs["RetentionInDays"] == 30


def test_a_group_may_start_without_members_and_can_be_scaled_to_all(make):
    sizes = {count: _group(make(initial_members=count), "Members")["ScalingConfig"] for count in (None, 0, 1)}
    assert {count: size["DesiredSize"] for count, size in sizes.items()} == {None: 2, 0: 0, 1: 1}
    assert {(size["MinSize"], size["MaxSize"]) for size in sizes.values()} == {(0, 2)}


def test_failed_jobs_of_this_cluster_reach_the_topic(make):
    synthesis = make()
    rule = synthesis.only("AWS::Events::Rule")
    name = read_submission(synthesis).cluster
    assert rule["EventPattern"] == {"source": [f"deeplearning-cdk.{name}"], "detail-type": ["Deep Learning Job Failed"]}
    (topic,) = synthesis.of_type("AWS::SNS::Topic")
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Ref": topic}
    assert json.loads(target["InputTransformer"]["InputTemplate"]) == "<kind>: <cluster>. <message>"


def test_pods_have_the_cluster_whose_events_they_send(make_stack, read_stack, monkeypatch):
    packed: list[Any] = []
    monkeypatch.setattr(training, "pack_member", lambda settings: packed.append(settings) or pack_member(settings))
    stack = make_stack()
    EksTraining(stack, "Training", image=IMAGE)
    synthesis = read_stack(stack)
    (settings,) = packed
    (source,) = synthesis.only("AWS::Events::Rule")["EventPattern"]["source"]
    assert source == f"deeplearning-cdk.{settings.event_cluster}"


@pytest.mark.parametrize(
    ("cidr", "zone", "second", "position"),
    [
        (None, None, "10.0.255.240/28", 1),
        ("10.1.0.0/20", "us-east-1a", "10.1.15.240/28", 1),
        ("10.2.0.0/26", "us-east-1c", "10.2.0.48/28", 0),
    ],
)
def test_control_plane_has_a_subnet_in_the_first_zone_without_nodes_that_overlaps_no_other(
    make, cidr, zone, second, position
):
    synthesis = make(network=Network(cidr=cidr, availability_zone=zone))
    subnets = {name: entry["Properties"] for name, entry in synthesis.of_type("AWS::EC2::Subnet").items()}
    (extra,) = (name for name in subnets if "SecondZone" in name)
    assert subnets[extra]["CidrBlock"] == second
    assert subnets[extra]["AvailabilityZone"] == {"Fn::Select": [position, {"Fn::GetAZs": ""}]}

    ranges = [ip_network(each["CidrBlock"]) for each in subnets.values()]
    assert not any(one.overlaps(other) for one in ranges for other in ranges if one is not other)
    used = synthesis.only("AWS::EKS::Cluster")["ResourcesVpcConfig"]["SubnetIds"]
    (nodes,) = _group(synthesis, "NodesMembers")["Subnets"]
    assert used == [nodes, {"Ref": extra}]


def test_a_subnet_of_an_existing_vpc_in_another_zone_is_used(make_stack, read_stack):
    stack = make_stack()
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-1",
        availability_zones=["us-east-1a", "us-east-1b"],
        private_subnet_ids=["subnet-a", "subnet-b"],
    )
    EksTraining(stack, "Training", image=IMAGE, network=Network(vpc=vpc, availability_zone="us-east-1b"))
    synthesis = read_stack(stack)
    assert synthesis.only("AWS::EKS::Cluster")["ResourcesVpcConfig"]["SubnetIds"] == ["subnet-b", "subnet-a"]
    assert synthesis.of_type("AWS::EC2::Subnet") == {}


# --- Nodes --------------------------------------------------------------------------------------------


def test_members_have_their_gpus_efa_a_placement_group_a_label_and_a_taint(make):
    synthesis = make(members=4)
    group, launch = _group(synthesis, "NodesMembers"), _launch(synthesis, "Members")
    assert group["AmiType"] == "BOTTLEROCKET_x86_64_NVIDIA"
    assert (group["InstanceTypes"], group["CapacityType"]) == (["p3dn.24xlarge"], "ON_DEMAND")
    assert group["ScalingConfig"] == {"MinSize": 0, "DesiredSize": 4, "MaxSize": 4}
    assert group["Labels"] == {"deeplearning/member": "true"}
    assert group["Taints"] == [{"Key": "nvidia.com/gpu", "Value": "present", "Effect": "NO_SCHEDULE"}]
    (interface,) = launch["NetworkInterfaces"]
    assert (interface["InterfaceType"], interface["AssociatePublicIpAddress"]) == ("efa", False)
    (placement,) = synthesis.of_type("AWS::EC2::PlacementGroup")
    assert launch["Placement"] == {"GroupName": {"Ref": placement}}


def test_every_further_card_of_a_member_has_an_interface_for_efa_alone(make):
    """EKS user guide, "Run machine learning training on Amazon EKS with Elastic Fabric Adapter"."""
    kinds = [
        each.get("InterfaceType")
        for each in _launch(make(instance_type="p4d.24xlarge"), "Members")["NetworkInterfaces"]
    ]
    assert kinds == [None, *["efa-only"] * 4]


@pytest.mark.parametrize(
    ("node_image", "instance_type", "kind"),
    [
        ("bottlerocket", "m5.xlarge", "BOTTLEROCKET_x86_64"),
        ("bottlerocket", "m7g.xlarge", "BOTTLEROCKET_ARM_64"),
        ("amazon-linux", "m5.xlarge", "AL2023_x86_64_STANDARD"),
        ("amazon-linux", "m7g.xlarge", "AL2023_ARM_64_STANDARD"),
        ("amazon-linux", "p3dn.24xlarge", "AL2023_x86_64_NVIDIA"),
        ("amazon-linux", "g5g.xlarge", "AL2023_ARM_64_NVIDIA"),
    ],
)
def test_image_of_the_members_fits_their_type(node_image, instance_type, kind):
    """EKS API reference, Nodegroup, amiType."""
    assert name_ami_type(node_image, read_catalog()[instance_type]) == kind


def test_members_without_gpus_have_neither_a_taint_nor_a_placement_group(make):
    synthesis = make(**CPU)
    assert "Taints" not in _group(synthesis, "NodesMembers")
    assert "Placement" not in _launch(synthesis, "Members")
    assert "InterfaceType" not in _launch(synthesis, "Members")["NetworkInterfaces"][0]


def test_one_node_runs_the_pods_of_the_system(make):
    group = _group(make(), "NodesSystem")
    assert (group["InstanceTypes"], group["AmiType"]) == (["m7i.large"], "BOTTLEROCKET_x86_64")
    assert group["ScalingConfig"]["DesiredSize"] == 1
    assert "Taints" not in group


@pytest.mark.parametrize(
    ("node_image", "disks"),
    [("bottlerocket", {"/dev/xvda": 8, "/dev/xvdb": 300}), ("amazon-linux", {"/dev/xvda": 300})],
)
def test_images_are_on_the_disk_that_the_system_has_for_them(make, node_image, disks):
    synthesis = make(node_image=node_image, image_disk=300)
    kind = name_ami_type(node_image, read_catalog()["p3dn.24xlarge"])
    assert _group(synthesis, "NodesMembers")["AmiType"] == kind
    for part in ("Members", "System"):
        for disk in _launch(synthesis, part)["BlockDeviceMappings"]:
            assert (disk["Ebs"]["Encrypted"], disk["Ebs"]["VolumeType"]) == (True, "gp3")
            assert "KmsKeyId" in disk["Ebs"]
    found = {
        disk["DeviceName"]: disk["Ebs"]["VolumeSize"] for disk in _launch(synthesis, "Members")["BlockDeviceMappings"]
    }
    assert found == disks


@pytest.mark.parametrize(
    ("props", "capacity"), [({}, ["ON_DEMAND", "ON_DEMAND"]), ({"purchase": Purchase.spot()}, ["SPOT", "ON_DEMAND"])]
)
def test_spot_is_a_choice_of_the_members_group_and_templates_have_nothing_that_groups_refuse(make, props, capacity):
    """EKS user guide, "Customize managed nodes with launch templates": no subnet, no instance profile, no spot."""
    synthesis = make(**props)
    assert [_group(synthesis, part)["CapacityType"] for part in ("NodesMembers", "NodesSystem")] == capacity
    for part in ("Members", "System"):
        launch = _launch(synthesis, part)
        assert not launch.keys() & {"IamInstanceProfile", "InstanceMarketOptions", "InstanceType", "ImageId"}
        assert all("SubnetId" not in each for each in launch["NetworkInterfaces"])
        assert launch["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}


def test_a_capacity_block_is_in_template_and_group(make):
    """EKS user guide, "Create a managed node group with Capacity Blocks for ML"."""
    block = Purchase.capacity_block("cr-0123456789abcdef0")
    synthesis = make(purchase=block, instance_type="p5.48xlarge", network=Network(availability_zone="us-east-1a"))
    launch, group = _launch(synthesis, "Members"), _group(synthesis, "NodesMembers")
    assert launch["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert launch["InstanceType"] == "p5.48xlarge"
    target = {"CapacityReservationId": "cr-0123456789abcdef0"}
    assert launch["CapacityReservationSpecification"] == {"CapacityReservationTarget": target}
    assert group["CapacityType"] == "CAPACITY_BLOCK"
    assert "InstanceTypes" not in group
    assert synthesis.of_type("AWS::EC2::PlacementGroup") == {}


def test_a_reservation_is_in_the_template_with_its_placement_group(make):
    reserved = Purchase.reservation("cr-0123456789abcdef0", placement_group="near")
    launch = _launch(make(purchase=reserved, network=Network(availability_zone="us-east-1a")), "Members")
    target = {"CapacityReservationId": "cr-0123456789abcdef0"}
    assert launch["CapacityReservationSpecification"] == {"CapacityReservationTarget": target}
    assert launch["Placement"] == {"GroupName": "near"}


# --- Order --------------------------------------------------------------------------------------------


def test_nodes_come_after_network_and_identity_and_before_dns_and_drivers(make):
    """Otherwise add-ons stay DEGRADED, and the stack fails (terraform-aws-eks#1868, #3001; pulumi-eks#1819)."""
    synthesis = make()
    names = {entry["Properties"]["AddonName"]: name for name, entry in synthesis.of_type("AWS::EKS::Addon").items()}
    first = {names.pop(each) for each in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")}
    assert set(names) == {"coredns", "aws-efs-csi-driver", "eks-node-monitoring-agent"}
    groups = synthesis.of_type(GROUP)
    for group in groups:
        assert first <= synthesis.before(group)
        assert set(synthesis.of_type("AWS::EFS::MountTarget")) <= synthesis.before(group)
    (system,) = (name for name in groups if "NodesSystem" in name)
    for addon in names.values():
        assert system in synthesis.before(addon)


def test_a_job_that_is_submitted_as_soon_as_the_document_exists_finds_all(make):
    synthesis = make(storage=Storage(data=[DataSource("train", "images", "train/")]))
    (document,) = synthesis.of_type("AWS::SSM::Parameter")
    needed = synthesis.before(document)
    for kind in (
        GROUP,
        "AWS::EKS::Addon",
        "AWS::EKS::PodIdentityAssociation",
        "AWS::EFS::MountTarget",
        "AWS::EC2::NatGateway",
        "AWS::EC2::VPCEndpoint",
        "AWS::EC2::SecurityGroupIngress",
    ):
        assert synthesis.of_type(kind), kind
        assert set(synthesis.of_type(kind)) <= needed, kind
    assert {name for name in synthesis.of_type("AWS::IAM::ManagedPolicy") if "JobRole" in name} <= needed


# --- Submission document ------------------------------------------------------------------------------


def test_document_says_how_a_job_starts(make):
    data = [DataSource("train", "images", "train/")]
    synthesis = make(members=4, queue="team", storage=Storage(mount_point="/mnt/efs", data=data))
    document, settings = read_submission(synthesis), read_kubernetes(synthesis)
    assert (document.platform, document.login_user, document.training) == ("eks", "root", None)
    (cluster,) = synthesis.of_type("AWS::EKS::Cluster")
    assert settings.cluster_name == f"<{cluster}>"
    assert settings.endpoint == f"<{cluster}.Endpoint>"
    assert settings.authority == f"<{cluster}.CertificateAuthorityData>"
    assert (settings.namespace, settings.service_account) == ("kubeflow-dist-train", "deeplearning-job")
    assert (settings.members, settings.gpu_count, settings.efa_count) == (4, 8, 1)
    assert (settings.shared_capacity, settings.claim_capacity) == ("85Gi", "85Gi")
    assert (settings.image, settings.mount_point, settings.queue) == (IMAGE, "/mnt/efs", "team")
    assert (settings.node_label, settings.has_nvidia_plugin) == ("deeplearning/member=true", True)
    (system,), (point,) = synthesis.of_type("AWS::EFS::FileSystem"), synthesis.of_type("AWS::EFS::AccessPoint")
    assert settings.volume_handle == f"<{system}>::<{point}>"
    assert settings.data == (DataSettings("train", "images", "train/", "efs", ""),)
    # The image is built unless the user brings one.
    assert "cdk-hnb659fds-container-assets" in read_kubernetes(make(image=None)).image


@pytest.mark.parametrize(
    ("props", "found"),
    [
        (CPU, (0, 0, False)),
        ({"node_image": "amazon-linux"}, (8, 1, False)),
        ({"network": Network(efa=False)}, (8, 0, True)),
    ],
    ids=str,
)
def test_document_names_what_the_nodes_have(make, props, found):
    settings = read_kubernetes(make(**props))
    assert (settings.gpu_count, settings.efa_count, settings.has_nvidia_plugin) == found


# --- Warnings and the rest ----------------------------------------------------------------------------


def test_user_is_warned_of_a_cluster_that_nobody_stops_or_prepares_and_of_a_retired_type(make):
    assert make(**CPU).warnings == []
    (cost,) = make().warnings
    assert NEVER_STOPS in cost
    assert "p3dn.24xlarge costs by the second" in cost
    (nobody,) = make(**CPU, administrators=()).warnings
    assert NO_ADMINISTRATOR in nobody
    assert any("AWS has retired p3.8xlarge" in each for each in make(instance_type="p3.8xlarge").warnings)


def test_commands_name_the_cluster_and_the_group_of_the_members(make_stack):
    stack = make_stack()
    training = EksTraining(stack, "Training", image=IMAGE)
    found = [stack.resolve(each) for each in (training.kubeconfig_command, training.scale_down_command)]
    assert all("aws eks update-" in render(each) for each in found)
    assert {name for each in found for name in references(each)} >= {"AWS::Region"}
    assert render(found[1]).endswith(".NodegroupName> --scaling-config minSize=0,desiredSize=0")


def test_tags_of_the_whole_are_on_nodes_disks_and_interfaces(make):
    for part in ("Members", "System"):
        tagged = {each["ResourceType"]: each["Tags"] for each in _launch(make(), part)["TagSpecifications"]}
        assert set(tagged) == {"instance", "volume", "network-interface"}
        assert all(any(tag["Key"] == "deeplearning:cluster" for tag in tags) for tags in tagged.values())


def test_next_release_leaves_launch_templates_and_node_groups_as_they_are(make_app, read_stack, monkeypatch):
    """EKS replaces every node of a group whose launch template has another text (EKS user guide, launch-templates)."""

    def synthesize():
        stack = cdk.Stack(make_app(), "Stack")
        EksTraining(stack, "Training")
        return read_stack(stack)

    before = synthesize()
    monkeypatch.setattr(training, "pack_member", lambda _: keep_file("member.zip", b"the programs of the next release"))
    monkeypatch.setattr(version, "VERSION", "99.0.0")
    after = synthesize()
    assert before.template != after.template
    for kind in ("AWS::EC2::LaunchTemplate", "AWS::EKS::Nodegroup"):
        one, other = (
            {name: entry["Properties"] for name, entry in each.of_type(kind).items()} for each in (before, after)
        )
        assert one
        assert one == other
