"""Operations of EC2 about the account, which moto lacks or answers from a table of its own."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.responses import EC2Response

from cdk_rehearsal.embedded_aws.base.capacity_pools import Capacity
from cdk_rehearsal.embedded_aws.base.reservations import Reservation
from cdk_rehearsal.place import Place

_FILTERS: Mapping[str, str] = {
    "availability-zone": "AvailabilityZone",
    "end-date-type": "EndDateType",
    "instance-match-criteria": "InstanceMatchCriteria",
    "instance-platform": "InstancePlatform",
    "instance-type": "InstanceType",
    "owner-id": "OwnerId",
    "state": "State",
    "tenancy": "Tenancy",
}
"""Filter -> field (EC2 API, DescribeCapacityReservations); dates and Outposts are not filtered by."""


def install_reservations(capacity: Capacity, place: Place) -> None:
    """Let EC2 answer for the capacity reservations of the account."""

    def describe_capacity_reservations(api: EC2Response) -> ActionResult:
        names = api._get_param("CapacityReservationIds", [])  # noqa: SLF001 - moto's own way to read a parameter
        filters = {entry["Name"]: entry["Values"] for entry in api._get_param("Filters", [])}  # noqa: SLF001
        for name in filters:
            if name not in _FILTERS:
                raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
        known = capacity.reservations.list()
        for name in names:
            if name not in known:
                # The code: EC2 API, "Error codes for the Amazon EC2 API".
                message = f"The Capacity Reservation ID '{name}' does not exist"
                raise EC2ClientError("InvalidCapacityReservationId.NotFound", message)
        found = [_describe(known[name], capacity, place) for name in names or known]
        shown = [row for row in found if all(row[_FILTERS[key]] in values for key, values in filters.items())]
        return ActionResult({"CapacityReservations": shown})

    _add(EC2Response, describe_capacity_reservations)


def install_offerings(capacity: Capacity) -> None:
    """Let EC2 offer no instance type in a zone that lacks it."""

    def describe_instance_type_offerings(backend: EC2Backend, location_type: str, filters: Any = None) -> list[Any]:
        offered = _LIST_OFFERINGS(backend, location_type, filters)
        return [
            each for each in offered if each["InstanceType"] not in capacity.missing_types.get(each["Location"], ())
        ]

    _add(EC2Backend, describe_instance_type_offerings)


def install_scores() -> None:
    """
    Let EC2 score capacity, as in an account without Capacity Manager.

    Fewer than three types always get a low spot placement score (EC2 API, `GetSpotPlacementScores`); others get the
    highest. With which code EC2 refuses the supportability of an account without the plan for it, no page of AWS says.
    """

    def get_spot_placement_scores(api: EC2Response) -> ActionResult:
        types = api._get_param("InstanceTypes", [])  # noqa: SLF001 - moto's own way to read a parameter
        score = _LOW if len(types) < _ENOUGH_TYPES else _HIGH
        zones = api.ec2_backend.describe_availability_zones()
        rows = [
            {"Region": zone.region_name, "AvailabilityZoneId": zone.zone_id, "Score": score} for zone in zones[:_HIGH]
        ]
        return ActionResult({"SpotPlacementScores": rows})

    def get_capacity_manager_supportability_scores(_: EC2Response) -> ActionResult:
        raise EC2ClientError("UnsupportedOperation", "The account is not on the Unified Operations plan")

    _add(EC2Response, get_spot_placement_scores)
    _add(EC2Response, get_capacity_manager_supportability_scores)


def install_block_offerings() -> None:
    """
    Let EC2 offer a Capacity Block that begins tomorrow, in the region's first zone, of each type that it sells so.

    A block begins and ends at 11:30 UTC (EC2 User Guide, "Capacity Blocks for ML"). The fee is made up, as is the code
    with which other types are refused.
    """

    def describe_capacity_block_offerings(api: EC2Response) -> ActionResult:
        name, count = api._get_param("InstanceType"), int(api._get_param("InstanceCount"))  # noqa: SLF001 - moto's own
        hours = int(api._get_param("CapacityDurationHours"))  # noqa: SLF001 - moto's own way to read a parameter
        if "capacity-block" not in INSTANCE_TYPES.get(name, {}).get("SupportedUsageClasses", ()):
            raise EC2ClientError("InvalidParameterValue", f"{name} is not supported in Capacity Blocks")
        start = (utcnow() + timedelta(days=1)).replace(hour=11, minute=30, second=0, microsecond=0)
        offer = {
            "CapacityBlockOfferingId": "cb-0123456789abcdef0",
            "InstanceType": name,
            "AvailabilityZone": api.ec2_backend.describe_availability_zones()[0].name,
            "InstanceCount": count,
            "StartDate": start,
            "EndDate": start + timedelta(hours=hours),
            "CapacityBlockDurationHours": hours,
            "UpfrontFee": f"{count * hours}.00",
            "CurrencyCode": "USD",
            "Tenancy": "default",
        }
        return ActionResult({"CapacityBlockOfferings": [offer]})

    _add(EC2Response, describe_capacity_block_offerings)


_LOW, _HIGH, _ENOUGH_TYPES = 1, 10, 3
_LIST_OFFERINGS = EC2Backend.describe_instance_type_offerings


def _add(owner: type, operation: Callable[..., Any]) -> None:
    setattr(owner, operation.__name__, operation)


def _describe(reservation: Reservation, capacity: Capacity, place: Place) -> dict[str, Any]:
    """Return a reservation in the API's form."""
    starts, ends = capacity.reservations.find_dates(reservation)
    state = capacity.reservations.find_state(reservation)
    free = max(0, reservation.instances - len(capacity.list_reserved(reservation.id))) if state == "active" else 0
    return {
        "CapacityReservationId": reservation.id,
        "CapacityReservationArn": place.arn("ec2", f"capacity-reservation/{reservation.id}"),
        "OwnerId": place.account,
        "InstanceType": reservation.instance_type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": reservation.zone,
        "Tenancy": "default",
        "TotalInstanceCount": reservation.instances,
        "AvailableInstanceCount": free,
        "State": state,
        "StartDate": starts,
        **({"EndDate": ends} if ends else {}),
        "EndDateType": "limited" if ends else "unlimited",
        "InstanceMatchCriteria": "targeted",
        "CreateDate": capacity.reservations.opened[1],
        "ReservationType": "capacity-block" if reservation.is_block else "default",
    }
