"""
Capacity of a node by its instance type, and the part of it that pods may have.

Sources: EC2 API, DescribeInstanceTypes; awslabs/amazon-eks-ami, nodeadm, `kubelet/config.go` (reserved CPU and memory,
eviction thresholds); Amazon EKS user guide, "Choose an optimal Amazon EC2 node instance type" (pods by addresses). The
instance store has the containers where user data says so: awslabs/amazon-eks-ami, API reference of nodeadm
(`localStorage`); Bottlerocket documentation, "Bootstrap Commands".
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

_HIDDEN_PERCENT = 7.5
"""Part of a type's memory that its operating system does not show (Karpenter, VM_MEMORY_OVERHEAD_PERCENT)."""
_EVICTION_MIB, _BASE_MIB, _POD_MIB = 100, 255, 11
_MOST_PODS, _MANY_VCPUS, _MOST_PODS_OF_LARGE = 110, 30, 250
_ROOT_GIB = 20
"""Size of a node's volume where the launch template says none."""
_INSTANCE_STORE = re.compile(r'strategy:\s*RAID0\b|"ephemeral-storage",\s*"bind"')
"""Of user data that puts containers on a type's own disks."""


def measure_node(facts: Mapping[str, Any], template: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return the capacity of a node, and what pods may have of it.

    Args:
        facts: Description of the instance type.
        template: Data of the user's launch template.
    """
    vcpus, network = facts["VCpuInfo"]["DefaultVCpus"], facts["NetworkInfo"]
    pods = network["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2
    pods = min(pods, _MOST_PODS if vcpus <= _MANY_VCPUS else _MOST_PODS_OF_LARGE)
    memory = int(facts["MemoryInfo"]["SizeInMiB"] * (100 - _HIDDEN_PERCENT) / 100)
    disk = _measure_disk(facts, template)
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


def _measure_disk(facts: Mapping[str, Any], template: Mapping[str, Any]) -> int:
    """Return the GiB of the disk with the containers: the instance store, else the largest volume."""
    store = int(facts.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0))
    if store and _INSTANCE_STORE.search(base64.b64decode(template.get("UserData", "")).decode()):
        return store * 10**9 >> 30
    volumes = (int(each.get("Ebs", {}).get("VolumeSize", 0)) for each in template.get("BlockDeviceMappings", []))
    return max(volumes, default=0) or _ROOT_GIB


def _reserve_cpu(vcpus: int) -> int:
    """Return the thousandths of a CPU that the kubelet keeps: 6 %, 1 %, twice 0.5 %, and 0.25 % of each further one."""
    shares = (60.0, 10.0, 5.0, 5.0)
    return int(sum(shares[:vcpus]) + 2.5 * max(0, vcpus - len(shares)))
