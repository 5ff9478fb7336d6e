"""Nodes have what their instance type has, less what EKS reserves."""

import base64

import pytest

from cdk_rehearsal.embedded_aws.eks.node_size import measure_node


def describe(vcpus, mebibytes, interfaces, addresses):
    network = {"MaximumNetworkInterfaces": interfaces, "Ipv4AddressesPerInterface": addresses}
    return {
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "MemoryInfo": {"SizeInMiB": mebibytes},
        "NetworkInfo": network,
    }


@pytest.mark.parametrize(
    ("facts", "cpu", "pods", "memory"),
    [
        (describe(2, 8192, 3, 10), "1930m", "29", "6903Mi"),  # m5.large
        (describe(4, 16384, 4, 15), "3920m", "58", "14162Mi"),  # m5.xlarge
        (describe(192, 2097152, 64, 50), "191450m", "250", "1936760Mi"),  # p5.48xlarge
    ],
)
def test_pods_get_what_eks_leaves_of_a_type(facts, cpu, pods, memory):
    capacity, allocatable = measure_node(facts, {})
    assert (allocatable["cpu"], allocatable["pods"], allocatable["memory"]) == (cpu, pods, memory)
    assert capacity["ephemeral-storage"] == "20Gi"


def test_the_largest_volume_of_the_launch_template_has_the_containers():
    devices = [{"Ebs": {"VolumeSize": 4}}, {"Ebs": {"VolumeSize": 100}}, {"VirtualName": "ephemeral0"}]
    capacity, allocatable = measure_node(describe(2, 8192, 3, 10), {"BlockDeviceMappings": devices})
    assert (capacity["ephemeral-storage"], allocatable["ephemeral-storage"]) == ("100Gi", "91136Mi")


@pytest.mark.parametrize(
    ("user_data", "size"),
    [
        ("spec:\n  instance:\n    localStorage:\n      strategy: RAID0\n", "3539Gi"),
        ('  ["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd"]\n', "3539Gi"),
        ("", "200Gi"),
    ],
)
def test_the_instance_store_has_the_containers_where_user_data_says_so(user_data, size):
    facts = describe(48, 196608, 15, 50) | {"InstanceStorageInfo": {"TotalSizeInGB": 3800}}  # g5.12xlarge
    encoded = base64.b64encode(user_data.encode()).decode()
    template = {"BlockDeviceMappings": [{"Ebs": {"VolumeSize": 200}}], "UserData": encoded}
    assert measure_node(facts, template)[0]["ephemeral-storage"] == size


def test_a_type_without_an_instance_store_has_the_containers_on_its_volume():
    template = {"UserData": base64.b64encode(b"strategy: RAID0").decode()}
    assert measure_node(describe(2, 8192, 3, 10), template)[0]["ephemeral-storage"] == "20Gi"
