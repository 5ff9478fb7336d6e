"""
Capacity of a node by its instance type, and the part of it that pods may have.

Sources: EC2 API, DescribeInstanceTypes; awslabs/amazon-eks-ami, nodeadm, `kubelet/config.go` (reserved CPU and memory,
eviction thresholds); Amazon EKS user guide, "Choose an optimal Amazon EC2 node instance type" (pods by addresses).
"""

import base64
from collections.abc import Mapping
from typing import Any

_HIDDEN_PERCENT = 7.5
"""Part of a type's memory that its operating system does not show (Karpenter, VM_MEMORY_OVERHEAD_PERCENT)."""
_EVICTION_MIB, _BASE_MIB, _POD_MIB = 100, 255, 11
_MOST_PODS, _MANY_VCPUS, _MOST_PODS_OF_LARGE = 110, 30, 250
_OWN_DISKS = ("localStorage:", '"ephemeral-storage", "bind"')
"""In the user data of nodes whose own disks have the containers: that of nodeadm, and Bottlerocket's command."""
_ROOT_GIB = 20
"""Size of a node's volume where the launch template says none."""


def measure_node(facts: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return the capacity of a node, and what pods may have of it.

    Args:
        facts: Description of the instance type.
        data: Data of its launch template; the largest volume has the containers, or the type's own disks where the
            user data says so.
    """
    vcpus, network = facts["VCpuInfo"]["DefaultVCpus"], facts["NetworkInfo"]
    pods = network["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2
    pods = min(pods, _MOST_PODS if vcpus <= _MANY_VCPUS else _MOST_PODS_OF_LARGE)
    memory = int(facts["MemoryInfo"]["SizeInMiB"] * (100 - _HIDDEN_PERCENT) / 100)
    disk = _measure_own_disks(facts, data) or _measure_volume(data)
    reserved = _BASE_MIB + _POD_MIB * pods + _EVICTION_MIB
    capacity = {
        "cpu": str(vcpus),
        "memory": f"{memory}Mi",
        "ephemeral-storage": f"{disk}Gi",
        "pods": str(pods),
    }
    # A tenth of the disk is left to evictions, and 1 GiB to the kubelet.
    allocatable = {
        **capacity,
        "cpu": f"{vcpus * 1000 - _reserve_cpu(vcpus)}m",
        "memory": f"{memory - reserved}Mi",
        "ephemeral-storage": f"{disk * 1024 * 9 // 10 - 1024}Mi",
    }
    return capacity, allocatable


def _measure_own_disks(facts: Mapping[str, Any], data: Mapping[str, Any]) -> int:
    """Return the GiB of a type's disks if its user data gives them to containers; 0 otherwise."""
    text = base64.b64decode(data.get("UserData", "")).decode(errors="replace")
    if not any(word in text for word in _OWN_DISKS):
        return 0
    return int(facts.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)) * 10**9 >> 30


def _measure_volume(data: Mapping[str, Any]) -> int:
    devices = data.get("BlockDeviceMappings", [])
    return max((int(each.get("Ebs", {}).get("VolumeSize", 0)) for each in devices), default=0) or _ROOT_GIB


def _reserve_cpu(vcpus: int) -> int:
    """Return the thousandths of a CPU that the kubelet keeps: 6 %, 1 %, twice 0.5 %, and 0.25 % of each further one."""
    shares = (60.0, 10.0, 5.0, 5.0)
    return int(sum(shares[:vcpus]) + 2.5 * max(0, vcpus - len(shares)))
