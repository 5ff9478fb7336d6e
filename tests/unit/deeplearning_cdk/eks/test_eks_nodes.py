"""Nodes of a cluster on EKS: what their image runs, their disks, their updates, and the room that they give a pod."""

import gzip
import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from deeplearning_cdk import Network, Purchase
from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts, read_catalog
from deeplearning_cdk.eks.node_images import FAMILIES, check_family
from deeplearning_cdk.eks.plan import EksPlan
from tests.unit.deeplearning_cdk.conftest import render
from tests.unit.deeplearning_cdk.eks.conftest import read_kubernetes

GROUP = "AWS::EKS::Nodegroup"
TEMPLATE = "AWS::EC2::LaunchTemplate"
SYSTEM_PODS_MIB = 512
"""Far more than the pods of add-ons and device plugins request on a member: the largest, of the monitor, is 30 MiB."""


def _find_recycling_parts(synthesis):
    """Return what recycles nodes when it changes: the templates, and each group without its sizes."""
    groups = {name: dict(entry["Properties"]) for name, entry in synthesis.of_type(GROUP).items()}
    for group in groups.values():
        group.pop("ScalingConfig")
    return synthesis.of_type(TEMPLATE), groups, synthesis.of_type("AWS::EC2::PlacementGroup")


@pytest.mark.parametrize(
    "props",
    [
        {},
        {"instance_type": "m5.xlarge"},
        {"instance_type": "m5d.xlarge", "node_image": "amazon-linux"},
        {"instance_type": "g5.xlarge"},
        {"instance_type": "p4d.24xlarge", "node_image": "amazon-linux", "image_disk": 300},
        {"image": None},
        {"network": Network(efa=False)},
        {"purchase": Purchase.spot()},
        {
            "purchase": Purchase.reservation("cr-0123456789abcdef0"),
            "network": Network(availability_zone="us-east-1a"),
        },
        {
            "purchase": Purchase.capacity_block("cr-0123456789abcdef0"),
            "instance_type": "p5.48xlarge",
            "network": Network(availability_zone="us-east-1a"),
        },
        {"version": "1.34", "system_instance_type": "m7g.large", "queue": "team", "namespace": "team"},
    ],
    ids=str,
)
def test_the_number_of_members_changes_nothing_that_recycles_nodes(make, props):
    """
    EKS refuses sizes and a template in one update, and a changed template recycles every node.

    Sources: EKS user guide, "Customize managed nodes with launch templates"; aws/containers-roadmap#1258.
    """
    assert _find_recycling_parts(make(members=1, **props)) == _find_recycling_parts(make(members=450, **props))


def test_an_update_of_members_ends_a_node_before_it_launches_another(make):
    """EKS API reference, UpdateConfig, updateStrategy: minimal is for hardware accelerators."""
    members, system = (make().part(GROUP, part)["Properties"]["UpdateConfig"] for part in ("Members", "System"))
    assert members == {"MaxUnavailable": 1, "UpdateStrategy": "MINIMAL"}
    assert system == {"MaxUnavailable": 1, "UpdateStrategy": "DEFAULT"}


def test_a_group_has_no_version_so_that_that_of_the_cluster_replaces_no_node(make):
    """EKS API reference, UpdateNodegroupVersion, version: without one, that of the node group does not change."""
    assert all("Version" not in group["Properties"] for group in make(version="1.34").of_type(GROUP).values())
    assert _find_recycling_parts(make(version="1.34")) == _find_recycling_parts(make(version="1.35"))


# --- Images -------------------------------------------------------------------------------------------

ALL = {
    *("g4dn", "g5", "g6", "g6e", "g6f", "g7e", "gr6", "gr6f"),
    *("p3", "p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"),
}
"""Families of both images on x86-64 (EKS user guide, "Use EKS-optimized accelerated AMIs for GPU instances")."""


def test_each_image_runs_the_families_that_eks_lists():
    """The guide of November 2026; for g7, amazon-eks-ami#2768 (release v20260917) and bottlerocket#4889 (open)."""
    assert FAMILIES["bottlerocket"] == {*ALL, "g5g"}
    assert FAMILIES["amazon-linux"] == {*ALL, "g5g", "g7", "p6e-gb200", "p6e-gb300"}


@pytest.mark.parametrize(
    "facts", [each for each in read_catalog().values() if each.accelerator == "NVIDIA"], ids=lambda each: each.name
)
def test_a_type_of_the_catalogue_is_run_or_refused_with_a_way_out(facts):
    """The retired families g2, g3 and p2 have GPUs that no driver of EKS's images supports."""
    if facts.family in ALL | {"g5g"}:
        for image in FAMILIES:
            check_family(image, facts, "p3dn.24xlarge")
        return
    with pytest.raises(ValueError, match=r"^(node_image|instance_type) must .*, got .*; (pass|take) "):
        check_family("bottlerocket", facts, "p3dn.24xlarge")


def test_a_g7_is_run_by_amazon_linux_alone(make):
    with pytest.raises(ValueError, match="must") as caught:
        make(instance_type="g7.12xlarge")
    assert str(caught.value) == (
        "node_image must run the GPUs of g7.12xlarge, got bottlerocket; pass amazon-linux, or take p3dn.24xlarge"
    )
    group = make(instance_type="g7.12xlarge", node_image="amazon-linux").part(GROUP, "Members")["Properties"]
    assert group["AmiType"] == "AL2023_x86_64_NVIDIA"


def test_a_family_that_no_image_is_known_to_run_is_refused():
    newer = InstanceTypeFacts(name="g9.12xlarge", gpu_count=4, compute_capability="13.0")
    with pytest.raises(ValueError, match=r"^instance_type must have GPUs that EKS's images support, got g9\.12xlarge"):
        check_family("amazon-linux", newer, "p3dn.24xlarge")


# --- Disks --------------------------------------------------------------------------------------------


def _read_user_data(make, **props):
    data = make(**props).part(TEMPLATE, "MembersTemplate")["Properties"]["LaunchTemplateData"].get("UserData")
    return None if data is None else str(data["Fn::Base64"])


def test_own_disks_of_a_type_hold_images_and_files_of_pods(make):
    """
    Each image has a setting of its own for that.

    Sources: awslabs/amazon-eks-ami, API reference of nodeadm, LocalStorageStrategy; Bottlerocket documentation,
    "Bootstrap Commands", with the folders that aws/karpenter-provider-aws binds.
    """
    text = _read_user_data(make, node_image="amazon-linux") or ""
    assert text.startswith('MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n--//\n')
    assert (
        "Content-Type: application/node.eks.aws\n\n---\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n" in text
    )
    assert "\nspec:\n  instance:\n    localStorage:\n      strategy: RAID0\n\n--//--\n" in text
    settings = _read_toml(_read_user_data(make) or "")
    (command,) = settings["settings"]["bootstrap-commands"].values()
    folders = ["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]
    assert command == {
        "commands": [
            ["apiclient", "ephemeral-storage", "init"],
            ["apiclient", "ephemeral-storage", "bind", "--dirs", *folders],
        ],
        "mode": "always",
        "essential": True,
    }


def _read_toml(text):
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    document: dict[str, Any] = tomllib.loads(text)
    return document


@pytest.mark.parametrize("node_image", FAMILIES)
def test_nodes_without_own_disks_have_the_user_data_of_eks_alone(make, node_image):
    props = {"instance_type": "m5.xlarge", "node_image": node_image}
    assert _read_user_data(make, **props) is None
    system = make(**props).part(TEMPLATE, "SystemTemplate")["Properties"]["LaunchTemplateData"]
    assert "UserData" not in system


@pytest.mark.parametrize("node_image", FAMILIES)
@pytest.mark.parametrize(("instance_type", "throughput"), [("m5.xlarge", 500), ("p3dn.24xlarge", None)])
def test_a_disk_for_images_that_holds_data_too_is_faster(make, node_image, instance_type, throughput):
    """EBS user guide, "General Purpose SSD volumes": 125 MiB/s unless more is asked for, 0.25 for each IOPS."""
    synthesis = make(instance_type=instance_type, node_image=node_image)
    for part, wanted in (("Members", throughput), ("System", None)):
        launch = synthesis.part(TEMPLATE, f"{part}Template")["Properties"]["LaunchTemplateData"]
        assert launch["BlockDeviceMappings"][-1]["Ebs"].get("Throughput") == wanted


# --- Room of pods -------------------------------------------------------------------------------------


def _plan(facts, **more):
    values = {
        "members": 2,
        "initial_members": 2,
        "system": facts,
        "node_image": "bottlerocket",
        "image_disk": 200,
        "environment": None,
    }
    return EksPlan(facts=facts, purchase=Purchase.on_demand(), **{**values, **more})


def _list_descriptions():
    content = (files("moto.ec2") / "resources" / "instance_types.json.gz").read_bytes()
    descriptions: dict[str, Any] = json.loads(gzip.decompress(content))
    return descriptions


def test_memory_of_a_pod_fits_each_type_beside_the_kubelet_and_the_pods_of_the_system():
    """
    A pod whose requests do not fit stays Pending for ever.

    The kernel takes up to 3% (16,384 MiB are 15,524 on an m5.xlarge). The kubelet reserves 255 MiB, 11 MiB for each pod
    that may run, and evicts at 100 MiB (EKS user guide, "Amazon EKS node image defaults"; awslabs/amazon-eks-ami,
    nodeadm; bottlerocket, schnauzer `kube_reserve_memory`).
    """
    catalogue = read_catalog()
    for name, each in _list_descriptions().items():
        memory = each["MemoryInfo"]["SizeInMiB"]
        if name not in catalogue or memory < 4096:  # Smaller ones have too few addresses for the pods of the system.
            continue
        network = each["NetworkInfo"]
        cards = network["MaximumNetworkInterfaces"]
        pods = min(cards * (network["Ipv4AddressesPerInterface"] - 1) + 2, 737)  # eni-max-pods.txt has no more.
        left = memory * (1 - 0.055) - 255 - 11 * pods - 100 - SYSTEM_PODS_MIB
        assert 0 < _plan(catalogue[name]).memory_mib <= left, name
        assert _plan(catalogue[name]).memory_mib >= memory * 0.48, name


@pytest.mark.parametrize("size", [50, 200, 16_384])
def test_disk_of_a_pod_fits_and_leaves_room_for_images_before_the_kubelet_evicts(size):
    """
    The kubelet reserves 1 GiB, and evicts when a tenth of the disk is left; a file system takes up to 3%.

    Sources: Kubernetes documentation, "Node-pressure Eviction"; awslabs/amazon-eks-ami, nodeadm.
    """
    for facts in (
        read_catalog()["m5.xlarge"],
        replace(read_catalog()["m5d.xlarge"], local_gigabytes=size * 1074 // 1000),
    ):
        disk = _plan(facts, image_disk=size).disk_gibibytes
        assert 19 <= disk <= size * 0.97 * 0.9 - 1
        assert size * 0.97 * 0.9 - disk >= 20, "for images"


def test_disk_of_a_pod_is_that_of_the_disks_that_its_node_has(make):
    """A p3dn.24xlarge has 1,800 GB, a g4dn.xlarge 125 GB (EC2, DescribeInstanceTypes)."""
    found = {
        name: read_kubernetes(make(instance_type=name)).disk_gibibytes
        for name in ("m5.xlarge", "p3dn.24xlarge", "g4dn.xlarge")
    }
    assert found == {"m5.xlarge": 140, "p3dn.24xlarge": 1320, "g4dn.xlarge": 72}


def test_a_type_whose_size_is_not_known_limits_no_pod():
    unknown = InstanceTypeFacts(name="p5.96xlarge", gpu_count=8, has_local_disk=True)
    assert (_plan(unknown).memory_mib, _plan(unknown).disk_gibibytes) == (0, 0)


# --- EFA ----------------------------------------------------------------------------------------------


def _list_pulls(synthesis):
    return {
        render(resource)
        for statement in synthesis.statements("NodesRole")
        if "ecr:GetDownloadUrlForLayer" in statement["Action"]
        for resource in (statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]])
    }


def test_nodes_pull_the_efa_plugin_from_the_one_registry_that_has_it_for_all_regions(make):
    """aws/eks-charts, values.yaml of aws-efa-k8s-device-plugin names a registry in us-west-2."""
    plugin = "arn:<AWS::Partition>:ecr:us-west-2:602401143452:repository/eks/aws-efa-k8s-device-plugin"
    assert plugin in _list_pulls(make())
    for props in ({"image": None}, {"network": Network(efa=False)}, {"instance_type": "g5.xlarge"}):
        assert all("us-west-2" not in each for each in _list_pulls(make(**props))), props


def test_pods_ask_for_efa_only_with_an_image_of_the_users_because_the_built_one_has_no_software_for_it(make):
    assert read_kubernetes(make()).efa_count == 1
    built = make(image=None)
    assert read_kubernetes(built).efa_count == 0
    (interface,) = built.part(TEMPLATE, "MembersTemplate")["Properties"]["LaunchTemplateData"]["NetworkInterfaces"]
    assert interface["InterfaceType"] == "efa", "so that another image recycles no node"
