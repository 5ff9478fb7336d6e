"""
The dry run of a launch that Auto Scaling makes before it takes a group.

It refuses a template that names a key pair (eksctl-io/eksctl#1989, #1293), a security group (ryanmurakami/hbfl#58), an
instance profile (hashicorp/terraform-provider-aws#4769, #29866) or an image that does not exist, an image of another
architecture than the type (Genaker/TerraformMagentoCloud#21), a template that mixes interfaces with groups
(hashicorp/terraform-provider-aws#4570), one that asks for more than a quota allows (cloudcaptainsh/cloudcaptain#216),
and security groups of another VPC (mludvig/aws-ethereum-miner#12). Which other errors of EC2 it finds is not
documented; the rehearsal finds those that no launch of the template could escape, in its own words where none of EC2's
are public. A group that it takes, and of which every launch fails, is reported by `find_obstacles`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError, LaunchFault
from cdk_rehearsal.embedded_aws.base.scaling_group import ScalingGroup
from cdk_rehearsal.embedded_aws.ec2.launch_rules import find_wrong_architecture
from cdk_rehearsal.embedded_aws.ec2.launcher import collect_tags
from cdk_rehearsal.place import Place

PREFIX = "You must use a valid fully-formed launch template. "


def check_launch(group: ScalingGroup, data: Mapping[str, Any], place: Place, faults: Sequence[LaunchFault]) -> None:
    """Raise ValueError, with Auto Scaling's message, where EC2 would not launch the template of a new group."""
    zone = (list(group.zones) or [""])[0]
    planted = (
        fault.to_error(instance_type=str(data.get("InstanceType", "")), zone=zone).message
        for fault in faults
        if fault.at_creation and fault.concerns(tags=group.own_tags, group=group.name)
    )
    found = (
        planted,
        _find_wrong_tags(group, data),
        find_missing(data, place),
        find_wrong_interfaces(data, place),
        find_wrong_architecture(data, place),
    )
    for message in chain.from_iterable(found):
        raise ValueError(message if group.launch_configuration else PREFIX + message)
    if not _is_linked(group, data, place):
        raise ValueError(
            "One or more security groups in the launch template are not linked to the VPCs configured in the Auto "
            "Scaling group"
        )


def _is_linked(group: ScalingGroup, data: Mapping[str, Any], place: Place) -> bool:
    """Return whether the security groups of a launch are in the VPC of the group's subnets."""
    ec2, names = place.client("ec2"), _list_security_groups(data)
    groups = ec2.describe_security_groups(GroupIds=names)["SecurityGroups"] if names else []
    subnets = ec2.describe_subnets(SubnetIds=list(group.subnet_ids))["Subnets"]
    return {each["VpcId"] for each in groups} <= {each["VpcId"] for each in subnets}


def _list_security_groups(data: Mapping[str, Any]) -> list[str]:
    named = {name for card in data.get("NetworkInterfaces", []) for name in card.get("Groups", [])}
    return sorted(named.union(data.get("SecurityGroupIds", [])))


def _find_wrong_tags(group: ScalingGroup, data: Mapping[str, Any]) -> Iterator[str]:
    try:
        collect_tags(data, group.launch_tags)
    except LaunchError as error:
        yield error.message


def find_missing(data: Mapping[str, Any], place: Place) -> Iterator[str]:
    """Yield EC2's words for what a launch names and nobody has."""
    ec2 = place.client("ec2")
    if key := data.get("KeyName"):
        yield from _ask(ec2.describe_key_pairs, {"KeyNames": [key]}, f"The key pair '{key}' does not exist")
    image = data.get("ImageId", "")
    yield from _ask(ec2.describe_images, {"ImageIds": [image]}, f"The image id '[{image}]' does not exist")
    for name in _list_security_groups(data):
        missing = f"The security group '{name}' does not exist"
        yield from _ask(ec2.describe_security_groups, {"GroupIds": [name]}, missing)
    yield from _find_missing_profile(data.get("IamInstanceProfile", {}), place)


def _find_missing_profile(profile: Mapping[str, Any], place: Place) -> Iterator[str]:
    for key, given in profile.items():
        name = str(given).rpartition("/")[2]
        kind = "ARN" if key == "Arn" else "name"
        wrong = f"Value ({given}) for parameter iamInstanceProfile.{key.lower()} is invalid. "
        missing = f"{wrong}Invalid IAM Instance Profile {kind}"
        yield from _ask(place.client("iam").get_instance_profile, {"InstanceProfileName": name}, missing)


def _ask(describe: Callable[..., Any], names: Mapping[str, Any], missing: str) -> Iterator[str]:
    try:
        described = describe(**names)
    except ClientError:
        described = {}
    if not any(value for key, value in described.items() if key != "ResponseMetadata"):
        yield missing


def find_wrong_interfaces(data: Mapping[str, Any], place: Place) -> Iterator[str]:
    """Yield why EC2 refuses the type or the interfaces of a launch."""
    kind, interfaces = str(data.get("InstanceType", "m1.small")), data.get("NetworkInterfaces", [])
    try:
        facts = place.client("ec2").describe_instance_types(InstanceTypes=[kind])["InstanceTypes"][0]["NetworkInfo"]
    except (ClientError, IndexError):
        yield f"Invalid value '{kind}' for InstanceType."
        return
    if not interfaces:
        return
    if data.get("SecurityGroupIds"):
        yield "When a network interface is provided, the security groups must be a part of it."
    places = Counter((card.get("NetworkCardIndex", 0), card.get("DeviceIndex", 0)) for card in interfaces)
    if max(places.values()) > 1:
        yield "Each network interface requires a unique device index."
    if (0, 0) not in places:
        yield "A primary network interface must have network card index 0 and device index 0."
    if len(interfaces) > 1 and any(card.get("AssociatePublicIpAddress") for card in interfaces):
        yield (
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
            "interfaces."  # zalando-incubator/kubernetes-on-aws#8733
        )
    for index, _ in places:
        if index >= facts.get("MaximumNetworkCards", 1):
            yield f"Network card index {index} is not valid for the instance type '{kind}'."
    efa = [card for card in interfaces if str(card.get("InterfaceType", "interface")).startswith("efa")]
    if len(efa) > facts.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0):
        yield f"{len(efa)} EFA interfaces are not supported by the instance type '{kind}'."
