"""Answers of an account, read through the APIs of EC2, Service Quotas, CloudWatch and Systems Manager."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from deeplearning_cli.account.demand import NodeDemand, Zone

T = TypeVar("T")
_USAGE_HOURS = 3
"""Time back in which the usage of a quota is looked for; the metric has a point every few minutes."""


@dataclass(frozen=True)
class Refused:
    """An answer that the account did not give, and why."""

    reason: str


@dataclass(frozen=True)
class Quota:
    """A quota of vCPUs, and how many of them run now; None where that could not be read."""

    vcpus: float
    used: float | None


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation, or a Capacity Block."""

    state: str
    instance_type: str
    zone: str
    free: int
    is_block: bool
    start: str = ""
    end: str = ""


@dataclass(frozen=True)
class Subnet:
    """A subnet of the account: its zone and VPC, and how many of its IPv4 addresses are free."""

    zone: str
    vpc: str
    free: int


@dataclass(frozen=True)
class Answers:
    """
    Answers of an account.

    Attributes:
        zones: Names of the region's zones with their ids, in the order in which `Fn::GetAZs` has them.
        subnets: Id -> subnet of the account that nodes of the stack launch in.
        vcpus: Instance type -> vCPUs.
        sold_in_blocks: Instance types that EC2 sells in Capacity Blocks.
        offered: Instance type -> zones that offer it.
        quotas: Name of a quota of EC2 -> quota.
        reservations: Id -> reservation.
        images: Image as the demand names it -> id; None where there is none.
        key_pairs: Names of the key pairs that exist.
    """

    zones: Mapping[str, str] | Refused = field(default_factory=dict)
    subnets: Mapping[str, Subnet] | Refused = field(default_factory=dict)
    vcpus: Mapping[str, int] | Refused = field(default_factory=dict)
    sold_in_blocks: frozenset[str] = frozenset()
    offered: Mapping[str, frozenset[str]] | Refused = field(default_factory=dict)
    quotas: Mapping[str, Quota] | Refused = field(default_factory=dict)
    reservations: Mapping[str, Reservation] | Refused = field(default_factory=dict)
    images: Mapping[str, str | None] | Refused = field(default_factory=dict)
    key_pairs: frozenset[str] | Refused = frozenset()

    def place(self, zone: Zone | None) -> str:
        """Return the name of a zone; empty where it is not known."""
        if zone is None:
            return ""
        if zone.subnet and not isinstance(self.subnets, Refused):
            found = self.subnets.get(zone.subnet)
            return found.zone if found else ""
        if zone.index is not None and not isinstance(self.zones, Refused):
            return dict(enumerate(self.zones)).get(zone.index, "")
        return zone.name

    def find_refusal(self, zone: Zone | None) -> Refused | None:
        """Return why the name of a zone is not known; None where the account has not refused to say it."""
        if zone is None:
            return None
        asked = self.subnets if zone.subnet else self.zones if zone.index is not None else None
        return asked if isinstance(asked, Refused) else None


def read_answers(clients: Callable[[str], Any], demands: Sequence[NodeDemand], quotas: Sequence[str]) -> Answers:
    """
    Ask an account, with calls that change nothing; an answer that it refuses is kept as `Refused`.

    Args:
        clients: Returns boto3's client of a service.
        demands: What the stack asks for.
        quotas: Names of the quotas of EC2 to read.
    """
    ec2 = clients("ec2")
    types = sorted({demand.instance_type for demand in demands})
    subnets = sorted({demand.zone.subnet for demand in demands if demand.zone and demand.zone.subnet})
    reserved = sorted({demand.reservation for demand in demands if demand.reservation})
    images = sorted({demand.image for demand in demands if demand.image})
    facts = ask(lambda: _read_types(ec2, types))
    return Answers(
        zones=ask(lambda: _read_zones(ec2)),
        subnets=ask(lambda: _read_subnets(ec2, subnets)) if subnets else {},
        vcpus=facts if isinstance(facts, Refused) else {name: each.vcpus for name, each in facts.items()},
        sold_in_blocks=frozenset(
            () if isinstance(facts, Refused) else (name for name, each in facts.items() if each.is_sold_in_blocks)
        ),
        offered=ask(lambda: _read_offered(ec2, types)),
        quotas=ask(lambda: _read_quotas(clients, frozenset(quotas))) if quotas else {},
        reservations=ask(lambda: _read_reservations(ec2, reserved)) if reserved else {},
        images=ask(lambda: {image: _find_image(clients, image) for image in images}),
        key_pairs=ask(lambda: frozenset(pair["KeyName"] for pair in ec2.describe_key_pairs()["KeyPairs"])),
    )


def ask(read: Callable[[], T]) -> T | Refused:
    """Return an answer, or why the account did not give it."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow, and only this command needs it

    try:
        return read()
    except (BotoCoreError, ClientError) as error:
        return Refused(str(error))


def read_pages(client: Any, operation: str, key: str, **parameters: Any) -> list[Any]:
    """Return the entries of all pages of an answer."""
    pages = client.get_paginator(operation).paginate(**parameters)
    return [entry for page in pages for entry in page[key]]


def _read_zones(ec2: Any) -> dict[str, str]:
    """
    Return the zones in the order of `Fn::GetAZs`: those with a default subnet, or all where none has one.

    Source: CloudFormation template reference, "Fn::GetAZs".
    """
    default = ec2.describe_subnets(Filters=[make_filter("default-for-az", ["true"])])["Subnets"]
    chosen = {subnet["AvailabilityZone"] for subnet in default}
    found = ec2.describe_availability_zones(Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}])
    zones = sorted(found["AvailabilityZones"], key=lambda zone: str(zone["ZoneName"]))
    return {zone["ZoneName"]: zone.get("ZoneId", "") for zone in zones if not chosen or zone["ZoneName"] in chosen}


def _read_subnets(ec2: Any, ids: Sequence[str]) -> dict[str, Subnet]:
    # By a filter, since an id that the account does not have makes the whole request invalid otherwise.
    found = ec2.describe_subnets(Filters=[make_filter("subnet-id", ids)])["Subnets"]
    return {
        each["SubnetId"]: Subnet(each["AvailabilityZone"], each["VpcId"], int(each["AvailableIpAddressCount"]))
        for each in found
    }


@dataclass(frozen=True)
class _TypeFacts:
    vcpus: int
    is_sold_in_blocks: bool


def _read_types(ec2: Any, types: Sequence[str]) -> dict[str, _TypeFacts]:
    # By a filter, since a type that the region does not have makes the whole request invalid otherwise.
    found = read_pages(ec2, "describe_instance_types", "InstanceTypes", Filters=[make_filter("instance-type", types)])
    return {
        each["InstanceType"]: _TypeFacts(
            int(each["VCpuInfo"]["DefaultVCpus"]), "capacity-block" in each.get("SupportedUsageClasses", ())
        )
        for each in found
    }


def _read_offered(ec2: Any, types: Sequence[str]) -> dict[str, frozenset[str]]:
    parameters = {"LocationType": "availability-zone", "Filters": [make_filter("instance-type", types)]}
    found = read_pages(ec2, "describe_instance_type_offerings", "InstanceTypeOfferings", **parameters)
    return {name: frozenset(each["Location"] for each in found if each["InstanceType"] == name) for name in types}


def make_filter(name: str, values: Sequence[str]) -> dict[str, Any]:
    """Return a filter of EC2."""
    return {"Name": name, "Values": list(values)}


def _read_quotas(clients: Callable[[str], Any], names: frozenset[str]) -> dict[str, Quota]:
    """Return the applied quotas; a quota without an applied value has the default one (`ListServiceQuotas`)."""
    client = clients("service-quotas")
    found = read_pages(client, "list_service_quotas", "Quotas", ServiceCode="ec2")
    if names - {each["QuotaName"] for each in found}:
        found = read_pages(client, "list_aws_default_service_quotas", "Quotas", ServiceCode="ec2") + found
    return {
        each["QuotaName"]: Quota(float(each["Value"]), _read_usage(clients, each.get("UsageMetric")))
        for each in {each["QuotaName"]: each for each in found if each["QuotaName"] in names}.values()
    }


def _read_usage(clients: Callable[[str], Any], metric: Mapping[str, Any] | None) -> float | None:
    """Return how much of a quota is used; a metric without a point is one of nothing."""
    if not metric:
        return None
    now = dt.datetime.now(tz=dt.UTC)
    dimensions = [{"Name": name, "Value": value} for name, value in metric.get("MetricDimensions", {}).items()]
    answer = ask(
        lambda: clients("cloudwatch").get_metric_statistics(
            Namespace=metric["MetricNamespace"],
            MetricName=metric["MetricName"],
            Dimensions=dimensions,
            StartTime=now - dt.timedelta(hours=_USAGE_HOURS),
            EndTime=now,
            Period=300,
            Statistics=["Maximum"],
        )
    )
    if isinstance(answer, Refused):
        return None
    points = sorted(answer["Datapoints"], key=lambda point: point["Timestamp"])
    return float(points[-1]["Maximum"]) if points else 0.0


def _read_reservations(ec2: Any, ids: Sequence[str]) -> dict[str, Reservation]:
    found: dict[str, Reservation] = {}
    for name in ids:
        describe = partial(ec2.describe_capacity_reservations, CapacityReservationIds=[name])
        answer = find(describe, "InvalidCapacityReservationId")
        if answer and answer["CapacityReservations"]:
            found[name] = _read_reservation(answer["CapacityReservations"][0])
    return found


def _read_reservation(entry: Mapping[str, Any]) -> Reservation:
    return Reservation(
        state=entry["State"],
        instance_type=entry["InstanceType"],
        zone=entry["AvailabilityZone"],
        free=int(entry.get("AvailableInstanceCount", 0)),
        is_block=entry.get("ReservationType") == "capacity-block",
        start=str(entry.get("StartDate", "")),
        end=str(entry.get("EndDate", "")),
    )


def read_parameter(clients: Callable[[str], Any], name: str) -> str | None:
    """Return the value of a parameter of Systems Manager; None where there is none."""
    found = find(lambda: clients("ssm").get_parameter(Name=name)["Parameter"]["Value"], "ParameterNotFound")
    return None if found is None else str(found)


def _find_image(clients: Callable[[str], Any], image: str) -> str | None:
    if image.startswith("ssm:"):
        return read_parameter(clients, image.removeprefix("ssm:"))
    return image if find(lambda: clients("ec2").describe_images(ImageIds=[image])["Images"], "InvalidAMIID") else None


def find(read: Callable[[], T], missing: str) -> T | None:
    """Return an answer; None for an error whose code begins with `missing`."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - slow, and only this command needs it

    try:
        return read()
    except ClientError as error:
        if error.response["Error"]["Code"].startswith(missing):
            return None
        raise
