"""
Quotas of EC2 for the vCPUs of instances, by family and purchase.

Names: EC2 User Guide, "Amazon EC2 service quotas" and "Spot Instance quotas", whose links have the codes. Dimension of
the metric of use: the answer of ListServiceQuotas; a quota whose answer is not public has none here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError, quota_refusal

_ENOUGH = 100_000.0
"""A quota that nobody set, in vCPUs."""
_STANDARD = r"(a|c|d|h|i|im|is|m|r|t|z)[0-9]"


@dataclass(frozen=True)
class VcpuQuota:
    """
    A quota.

    Attributes:
        code: Code in Service Quotas.
        name: Name there.
        pattern: Start of the instance types that count against it.
        usage: Value of the dimension `Class` of its metric. Empty: not known.
        is_spot: Whether it is about spot instances, or about on-demand ones.
    """

    code: str
    name: str
    pattern: str
    usage: str
    is_spot: bool = False


VCPU_QUOTAS = (
    VcpuQuota("L-417A185B", "Running On-Demand P instances", r"p[0-9]", "P/OnDemand"),
    VcpuQuota("L-DB2E81BA", "Running On-Demand G and VT instances", r"(g|vt)[0-9]", "G/OnDemand"),
    VcpuQuota("L-1945791B", "Running On-Demand Inf instances", r"inf[0-9]", "Inf/OnDemand"),
    VcpuQuota("L-2C3B7624", "Running On-Demand Trn instances", r"trn[0-9]", ""),
    VcpuQuota("L-6E869C2A", "Running On-Demand DL instances", r"dl[0-9]", "DL/OnDemand"),
    VcpuQuota("L-74FC7D96", "Running On-Demand F instances", r"f[0-9]", "F/OnDemand"),
    VcpuQuota("L-7295265B", "Running On-Demand X instances", r"x[0-9]", "X/OnDemand"),
    VcpuQuota("L-43DA4232", "Running On-Demand High Memory instances", r"u-", "HighMem/OnDemand"),
    VcpuQuota("L-F7808C92", "Running On-Demand HPC instances", r"hpc[0-9]", ""),
    VcpuQuota(
        "L-1216C47A",
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        rf"mac[0-9]|{_STANDARD}",
        "Standard/OnDemand",
    ),
    VcpuQuota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", r"p[2-4]", "P/Spot", is_spot=True),
    VcpuQuota("L-C4BD4855", "All P5 Spot Instance Requests", r"p[0-9]", "", is_spot=True),
    VcpuQuota("L-3819A6DF", "All G and VT Spot Instance Requests", r"(g|vt)[0-9]", "G/Spot", is_spot=True),
    VcpuQuota("L-B5D1601B", "All Inf Spot Instance Requests", r"inf[0-9]", "Inf/Spot", is_spot=True),
    VcpuQuota("L-6B0D517C", "All Trn Spot Instance Requests", r"trn[0-9]", "", is_spot=True),
    VcpuQuota("L-85EED4F7", "All DL Spot Instance Requests", r"dl[0-9]", "DL/Spot", is_spot=True),
    VcpuQuota("L-88CF9481", "All F Spot Instance Requests", r"f[0-9]", "F/Spot", is_spot=True),
    VcpuQuota("L-E3A00192", "All X Spot Instance Requests", r"x[0-9]", "X/Spot", is_spot=True),
    VcpuQuota(
        "L-34B43A08",
        "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        _STANDARD,
        "Standard/Spot",
        is_spot=True,
    ),
)


def find_quota(instance_type: str, *, is_spot: bool) -> VcpuQuota | None:
    """Return the quota that an instance counts against; None for a type of no known family."""
    return next(
        (each for each in VCPU_QUOTAS if each.is_spot == is_spot and re.match(each.pattern, instance_type)), None
    )


def count_vcpus(instance_type: str) -> int:
    """Return the vCPUs of an instance type; 0 for one that moto does not know, which no launch gets."""
    return int(_read_types().get(instance_type, {}).get("VCpuInfo", {}).get("DefaultVCpus", 0))


class VcpuQuotas:
    """The quotas of the account: name -> vCPUs, of those that are not large enough for everything."""

    def __init__(self, given: Mapping[str, float]) -> None:
        if unknown := set(given) - {each.name for each in VCPU_QUOTAS}:
            raise ValueError(f"quotas must be of EC2's vCPUs by their names, got {sorted(unknown)}")
        self._given = given

    def is_applied(self, quota: VcpuQuota) -> bool:
        """Return whether the account has a value of its own for a quota."""
        return quota.name in self._given

    def find_value(self, quota: VcpuQuota) -> float:
        """Return the vCPUs of a quota."""
        return self._given.get(quota.name, _ENOUGH)

    def require(self, instance_type: str, *, is_spot: bool, living: Iterable[tuple[str, bool]]) -> None:
        """Raise LaunchError where an instance would exceed its quota beside others: type of each, and whether spot."""
        quota = find_quota(instance_type, is_spot=is_spot)
        if quota is None:
            return
        used, limit = count_used(quota, living), self.find_value(quota)
        if used + count_vcpus(instance_type) > limit:
            raise _refuse(quota, limit)


def count_used(quota: VcpuQuota, living: Iterable[tuple[str, bool]]) -> int:
    """Return the vCPUs of a quota that instances use; `living` has the type of each, and whether it is spot."""
    return sum(count_vcpus(kind) for kind, is_spot in living if find_quota(kind, is_spot=is_spot) is quota)


def _refuse(quota: VcpuQuota, limit: float) -> LaunchError:
    if quota.is_spot:
        # The message: EC2 User Guide, "Spot Instance quotas"; the code: EC2 API, "Error codes for the Amazon EC2 API".
        return LaunchError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    return quota_refusal(limit)


@lru_cache(maxsize=1)
def _read_types() -> Mapping[str, Any]:
    from moto.ec2.models.instance_types import INSTANCE_TYPES  # noqa: PLC0415 - reading a case needs no moto

    return INSTANCE_TYPES
