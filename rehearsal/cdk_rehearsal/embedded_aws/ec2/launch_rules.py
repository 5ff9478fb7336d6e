"""Rules of EC2 that every launch of a template meets: those that depend on neither the time nor the zone."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError
from cdk_rehearsal.place import Place


def find_wrong_architecture(data: Mapping[str, Any], place: Place) -> Iterator[str]:
    """Yield EC2's words where image and type have no architecture in common (skypilot-org/skypilot#6315)."""
    images = place.client("ec2").describe_images(ImageIds=[data["ImageId"]])["Images"]
    own = str(images[0].get("Architecture") or "") if images else ""
    taken = _describe_type(data, place).get("ProcessorInfo", {}).get("SupportedArchitectures", [])
    if own and taken and own not in taken:
        yield (
            f"The architecture '{','.join(taken)}' of the specified instance type does not match the architecture "
            f"'{own}' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and "
            "try again. You can use 'describe-instance-types' or 'describe-images' to discover the architecture of "
            "the instance type or AMI."
        )


def find_obstacles(
    data: Mapping[str, Any], place: Place, root_volume: Callable[[str], tuple[str, int]], placement_group: str = ""
) -> Iterator[LaunchError]:
    """
    Yield why EC2 refuses every launch.

    Args:
        data: Data of the launch template.
        place: Account and region.
        root_volume: Returns root device and size of the snapshot of an image, in GiB.
        placement_group: Placement group of the Auto Scaling group. Default: it has none.
    """
    kind, facts = str(data.get("InstanceType", "m1.small")), _describe_type(data, place)
    is_clustered = bool(placement_group or data.get("Placement", {}).get("GroupName"))
    if is_clustered and "cluster" not in facts.get("PlacementGroupInfo", {}).get("SupportedStrategies", ["cluster"]):
        yield LaunchError(
            "InvalidParameterCombination",
            f"Cluster placement groups are not supported by the '{kind}' instance type. Specify a supported instance "
            "type or change the placement group strategy, and try again.",
        )
    yield from _find_wrong_purchase(data, kind, facts.get("SupportedUsageClasses", []))
    yield from _find_small_root(data, root_volume)


def _find_wrong_purchase(data: Mapping[str, Any], kind: str, classes: list[str]) -> Iterator[LaunchError]:
    """
    Yield why a type is not sold as the template buys it.

    Words: datacratic/StarCluster#55 for spot, terraform-aws-modules/terraform-aws-ec2-instance#404 for a market type
    that the reservation is not of.
    """
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    if market == "spot" and "spot" not in classes:
        message = f"Value ({kind}) for parameter instanceType is invalid. '{kind}' is an unsupported instance type"
        yield LaunchError("InvalidParameterValue", message)
    if market == "capacity-block" and ("capacity-block" not in classes or not target):
        message = "The market type (purchasing) option is not valid. Choose a different market type and try again"
        yield LaunchError("InvalidParameterValue", message)


def _find_small_root(data: Mapping[str, Any], root_volume: Callable[[str], tuple[str, int]]) -> Iterator[LaunchError]:
    """Yield a root volume that is smaller than the image's snapshot (spore-host/spawn#25)."""
    device, size = root_volume(data["ImageId"])
    for mapping in data.get("BlockDeviceMappings", []):
        asked = int(mapping.get("Ebs", {}).get("VolumeSize", size))
        if mapping["DeviceName"] == device and asked < size:
            snapshot = "snap-" + data["ImageId"].removeprefix("ami-")
            yield LaunchError(
                "InvalidBlockDeviceMapping",
                f"Volume of size {asked}GB is smaller than snapshot '{snapshot}', expect size >= {size}GB",
            )


def _describe_type(data: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    kind = str(data.get("InstanceType", "m1.small"))
    try:
        (facts,) = place.client("ec2").describe_instance_types(InstanceTypes=[kind])["InstanceTypes"]
    except (ClientError, ValueError):
        return {}
    return dict(facts)
