"""Capacity that EC2 has of an instance type in a zone, and its words where there is none left."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError, LaunchFault
from cdk_rehearsal.embedded_aws.base.reservations import Reservations
from cdk_rehearsal.embedded_aws.base.vcpu_quotas import VcpuQuota, VcpuQuotas, count_used

_NO_SPOT = "There is no Spot capacity available that matches your request."
"""EC2's message for Auto Scaling groups of spot instances (cortexlabs/cortex#1258)."""
_MISSING = "InsufficientInstanceCapacity"


@dataclass(frozen=True)
class CapacityPool:
    """
    Instances that EC2 has in a zone; without a pool, it has enough.

    Attributes:
        zone: Availability Zone.
        instances: How many can be there at a time.
        instance_type: Instance type. Default: any.
        is_spot: Whether it is about spot instances, or about others. Default: about both.
        seconds: Time after its first refusal from which on EC2 has enough. Default: never.
    """

    zone: str
    instances: int
    instance_type: str = ""
    is_spot: bool | None = None
    seconds: float = float("inf")

    def concerns(self, launch: "PlacedLaunch") -> bool:
        """Return whether it is about a launch."""
        is_type = self.instance_type in ("", launch.instance_type)
        return is_type and self.zone == launch.zone and self.is_spot in (None, launch.is_spot)


@dataclass(frozen=True)
class PlacedLaunch:
    """A launch with its type, its zone and its purchase; `reservation` is the id of the one that it targets."""

    instance_type: str
    zone: str
    is_spot: bool
    reservation: str = ""

    @classmethod
    def read(cls, data: Mapping[str, Any], zone: str) -> "PlacedLaunch":
        """Read the data of a launch template."""
        market = data.get("InstanceMarketOptions", {}).get("MarketType")
        target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        reservation = str(target.get("CapacityReservationId", ""))
        return cls(data.get("InstanceType", "m1.small"), zone, market == "spot", reservation)


@dataclass
class Capacity:
    """
    Capacity that EC2 has left; its owner holds a lock.

    Attributes:
        pools: The pools.
        living: Instances that take capacity, by their ids.
        refused: When each pool refused a launch first.
        reservations: The reservations of the account, which have capacity of their own.
        quotas: The quotas of the account.
        missing_types: Zone -> instance types that EC2 does not offer there.
    """

    pools: Sequence[CapacityPool] = ()
    living: dict[str, PlacedLaunch] = field(default_factory=dict)
    refused: dict[CapacityPool, float] = field(default_factory=dict)
    reservations: Reservations = field(default_factory=Reservations)
    quotas: VcpuQuotas = field(default_factory=lambda: VcpuQuotas({}))
    missing_types: Mapping[str, Collection[str]] = field(default_factory=dict)

    def require(self, launch: PlacedLaunch) -> None:
        """Raise LaunchError, as EC2 would, where a quota, a pool or a reservation has nothing left for a launch."""
        if self.reservations.find(launch.reservation) is not None:
            reserved = self.list_reserved(launch.reservation)
            self.reservations.require(launch.reservation, launch.instance_type, launch.zone, reserved)
            return
        if not launch.reservation:
            self.quotas.require(launch.instance_type, is_spot=launch.is_spot, living=self._list_counted())
        now = time.monotonic()
        unreserved = [each for each in self.living.values() if self.reservations.find(each.reservation) is None]
        for pool in self.pools:
            taken = sum(map(pool.concerns, unreserved))
            if not pool.concerns(launch) or taken < pool.instances:
                continue
            if now - self.refused.setdefault(pool, now) < pool.seconds:
                raise _no_capacity(launch)

    def count_used(self, quota: VcpuQuota) -> int:
        """Return the vCPUs of a quota that instances use."""
        return count_used(quota, self._list_counted())

    def _list_counted(self) -> list[tuple[str, bool]]:
        """
        Return type, and whether spot, of the instances that count against quotas.

        Those in a reservation do not: it counts itself, from its creation on, and a Capacity Block does not (EC2 User
        Guide, "Capacity Reservation limits and restrictions" and "Capacity Blocks for ML").
        """
        return [(each.instance_type, each.is_spot) for each in [*self.living.values()] if not each.reservation]

    def list_reserved(self, name: str) -> list[str]:
        """Return the instances that are in a reservation."""
        return [instance_id for instance_id, launch in [*self.living.items()] if launch.reservation == name]


def _no_capacity(launch: PlacedLaunch) -> LaunchError:
    message = _NO_SPOT if launch.is_spot else ""
    return LaunchFault(_MISSING, message=message).to_error(instance_type=launch.instance_type, zone=launch.zone)
