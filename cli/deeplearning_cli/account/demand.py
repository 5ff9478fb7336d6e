"""Instances that a synthesized stack asks for: type, zone, number and purchase of each group of nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deeplearning_contract.names import CANDIDATE_TAG, FIRST_CANDIDATE, ROLE_TAG, NodeRole

Market = Literal["on-demand", "spot", "reserved"]
_GROUP, _MANAGED_GROUP, _TEMPLATE, _REQUEST = (
    "AWS::AutoScaling::AutoScalingGroup",
    "AWS::EKS::Nodegroup",
    "AWS::EC2::LaunchTemplate",
    "Custom::RequestedCapacity",
)


@dataclass(frozen=True)
class Zone:
    """
    Zone of a group.

    Attributes:
        name: Name of the zone. Empty: it is the region's own, or a subnet's.
        index: Position in the region's list of zones. None: none is meant.
        subnet: Id of a subnet of the account that is in it. Empty: the stack creates the subnet.
    """

    name: str = ""
    index: int | None = None
    subnet: str = ""


@dataclass(frozen=True)
class NodeDemand:
    """
    Instances that an Auto Scaling group, or a managed node group of EKS, launches.

    Attributes:
        group: Logical id of the group.
        role: Role of its nodes, or empty.
        candidate: Candidate that it belongs to; groups of one candidate launch at a time.
        instance_type: Instance type.
        count: Instances that the stack asks for.
        zone: Where they launch. None: that is not in the template.
        market: How they are paid for.
        reservation: Id of their capacity reservation or Capacity Block. Empty: none, or a resource group.
        image: Id of an image, or `ssm:` with the name of a parameter. Empty: that is not in the template.
        key_pair: Name of the key pair. Empty: none.
        addresses: IPv4 addresses that each instance takes from its subnet.
        vpc: Id of the VPC of its security groups. Empty: the stack creates the VPC, or the template does not name it.
    """

    group: str
    role: str
    candidate: str
    instance_type: str
    count: int
    zone: Zone | None = None
    market: Market = "on-demand"
    reservation: str = ""
    image: str = ""
    key_pair: str = ""
    addresses: int = 1
    vpc: str = ""


def list_demands(templates: Sequence[Mapping[str, Any]]) -> tuple[NodeDemand, ...]:
    """
    Return the instances that the groups of a stack launch; groups without any are left out.

    Args:
        templates: Template of the stack, and those of its nested stacks.
    """
    found = []
    for template in templates:
        resources = template.get("Resources", {})
        found += [*_read_groups(resources), *_read_managed_groups(resources)]
    return tuple(found)


def _read_groups(resources: Mapping[str, Any]) -> Iterator[NodeDemand]:
    request: Mapping[str, Any] = next(
        (each["Properties"] for each in resources.values() if each["Type"] == _REQUEST), {}
    )
    for name, resource in resources.items():
        if resource["Type"] != _GROUP:
            continue
        properties = resource["Properties"]
        data = _find_template(properties.get("LaunchTemplate", {}).get("LaunchTemplateId"), resources)
        tags = {tag.get("Key"): tag.get("Value") for tag in properties.get("Tags", ())}
        role, count = str(tags.get(ROLE_TAG, "")), _count(properties, request, str(tags.get(ROLE_TAG, "")))
        if count == 0 or not isinstance(data.get("InstanceType"), str):
            continue
        market, reservation = _read_market(properties, data)
        yield NodeDemand(
            group=name,
            role=role,
            candidate=str(tags.get(CANDIDATE_TAG, FIRST_CANDIDATE)),
            instance_type=data["InstanceType"],
            count=count,
            zone=find_zone(properties.get("VPCZoneIdentifier", ()), resources),
            market=market,
            reservation=reservation,
            image=_find_image(data.get("ImageId"), resources),
            key_pair=_text(data.get("KeyName")),
            addresses=_count_addresses(data),
            vpc=_find_vpc(data, resources),
        )


def _read_managed_groups(resources: Mapping[str, Any]) -> Iterator[NodeDemand]:
    """
    Yield what managed node groups of EKS launch, all of them at a time, from an image that EKS finds.

    Only for a Capacity Block the type is in the launch template (EKS User Guide, "Create a managed node group with
    Capacity Blocks for ML").
    """
    for name, resource in resources.items():
        if resource["Type"] != _MANAGED_GROUP:
            continue
        properties = resource["Properties"]
        data = _find_template(properties.get("LaunchTemplate", {}).get("Id"), resources)
        kind = data.get("InstanceType") or next(iter(properties.get("InstanceTypes", ())), None)
        sizes = properties.get("ScalingConfig", {})
        count = str(sizes.get("DesiredSize", sizes.get("MinSize", 0)))
        if not isinstance(kind, str) or not count.isdigit() or count == "0":
            continue
        market, reservation = _read_market({}, data)
        yield NodeDemand(
            group=name,
            role="",
            candidate=FIRST_CANDIDATE,
            instance_type=kind,
            count=int(count),
            zone=find_zone(properties.get("Subnets", ()), resources),
            market="spot" if properties.get("CapacityType") == "SPOT" else market,
            reservation=reservation,
            addresses=_count_addresses(data),
            vpc=_find_vpc(data, resources),
        )


def _find_template(reference: Any, resources: Mapping[str, Any]) -> Mapping[str, Any]:
    template = resources.get(_reference(reference), {})
    data: Mapping[str, Any] = template.get("Properties", {}).get("LaunchTemplateData", {})
    return data if template.get("Type") == _TEMPLATE else {}


def _count(properties: Mapping[str, Any], request: Mapping[str, Any], role: str) -> int:
    """Return the capacity of a group: that of the stack's request, or its own."""
    names = {NodeRole.MASTER.value: "Master", NodeRole.WORKER.value: "Workers"}
    asked = request.get(names.get(role, ""), properties.get("DesiredCapacity", properties.get("MinSize", 0)))
    return int(asked) if str(asked).isdigit() else 0


def find_zone(subnets: Sequence[Any], resources: Mapping[str, Any]) -> Zone | None:
    """Return the zone of the first subnet that shows it; a group of a cluster has one."""
    for subnet in subnets:
        if isinstance(subnet, str):
            return Zone(subnet=subnet)
        zone = resources.get(_reference(subnet), {}).get("Properties", {}).get("AvailabilityZone")
        if isinstance(zone, str):
            return Zone(name=zone)
        match zone:
            case {"Fn::Select": [int(index) | str(index), {"Fn::GetAZs": _}]}:
                return Zone(index=int(index))
    return None


def _count_addresses(data: Mapping[str, Any]) -> int:
    """
    Return how many interfaces of an instance have an address.

    One for EFA only has none (EC2 User Guide, "Elastic Fabric Adapter for AI/ML and HPC workloads on Amazon EC2").
    """
    interfaces = data.get("NetworkInterfaces", ())
    return sum(each.get("InterfaceType") != "efa-only" for each in interfaces) or 1


def _find_vpc(data: Mapping[str, Any], resources: Mapping[str, Any]) -> str:
    groups = [*data.get("SecurityGroupIds", ())]
    groups += [group for each in data.get("NetworkInterfaces", ()) for group in each.get("Groups", ())]
    for group in groups:
        match group:
            case {"Fn::GetAtt": [str(name), "GroupId"]} if isinstance(
                vpc := resources.get(name, {}).get("Properties", {}).get("VpcId"), str
            ):
                return vpc
    return ""


def _read_market(properties: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[Market, str]:
    """Return how a group's instances are paid for, and their reservation."""
    group = properties.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    targets = [group, data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})]
    ids = [name for target in targets for name in target.get("CapacityReservationIds", ())]
    ids += [target["CapacityReservationId"] for target in targets if "CapacityReservationId" in target]
    if any(targets):
        return "reserved", _text(next(iter(ids), ""))
    return ("spot" if data.get("InstanceMarketOptions", {}).get("MarketType") == "spot" else "on-demand"), ""


def _find_image(image: Any, resources: Mapping[str, Any]) -> str:
    match image:
        case str():
            return image.replace("resolve:ssm:", "ssm:") if image.startswith("resolve:ssm:") else image
        case {"Fn::GetAtt": [name, _]}:
            parameter = resources.get(name, {}).get("Properties", {}).get("Parameter")
            return f"ssm:{parameter}" if isinstance(parameter, str) else ""
    return ""


def _reference(value: Any) -> str:
    """Return the logical id that a `Ref` names; empty for any other value."""
    return str(value.get("Ref", "")) if isinstance(value, Mapping) else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
