"""Creates single instances and key pairs."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError
from cdk_rehearsal.embedded_aws.ec2.launch_check import find_missing, find_wrong_interfaces
from cdk_rehearsal.embedded_aws.ec2.launcher import LaunchOrder
from cdk_rehearsal.embedded_aws.resources.compute.templates import admit_launch, find_template, typed
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.embedded_aws.resources.simple import is_true, specify_tags

_ATTRIBUTES = {
    "PrivateIp": "PrivateIpAddress",
    "PublicIp": "PublicIpAddress",
    "PrivateDnsName": "PrivateDnsName",
    "PublicDnsName": "PublicDnsName",
    "InstanceId": "InstanceId",
    "VpcId": "VpcId",
}
"""Attribute -> its name in EC2's description of an instance."""


def _create_instance(creation: Creation) -> Created:
    """
    Launch an instance; its properties take the place of those of its launch template.

    Where the subnet is missing, AWS takes a default VPC (EC2 API, `RunInstances`), which a new account of the rehearsal
    is not taken to have.
    """
    services, properties = creation.services, creation.properties
    data = _read_template(creation) | _read_properties(creation)
    subnet = str(properties.get("SubnetId") or _find_primary(data).get("SubnetId", ""))
    if not subnet:
        raise ValueError("SubnetId must be given in the rehearsal, which has no default VPC")
    admit_launch(creation, data)
    for message in (*find_missing(data, services.place), *find_wrong_interfaces(data, services.place)):
        raise ValueError(message)
    _require_one_place(creation, data, subnet)
    tags = {tag["Key"]: str(tag["Value"]) for tag in creation.tags()}
    volume_tags = tags if is_true(properties.get("PropagateTagsToVolumeOnCreation", False)) else {}
    order = LaunchOrder(creation.logical_id, data, [subnet], tags, volume_tags=volume_tags)
    machine, settle = services.instances.launch(order)
    _change_attributes(creation, machine.instance_id)
    attributes: dict[str, Any] = {
        name: partial(_describe, creation, machine.instance_id, key) for name, key in _ATTRIBUTES.items()
    }
    attributes["AvailabilityZone"] = machine.zone
    delete = partial(services.instances.terminate, machine.instance_id)
    return Created(machine.instance_id, attributes, settle=settle, delete=delete)


def _read_template(creation: Creation) -> dict[str, Any]:
    reference = creation.properties.get("LaunchTemplate")
    if reference is None:
        return {}
    template = find_template(creation, reference)["LaunchTemplateId"]
    return creation.services.launcher.read_template(template, str(reference["Version"]))


def _read_properties(creation: Creation) -> dict[str, Any]:
    """Return the properties in the form of a launch template's data."""
    properties = creation.properties
    data = properties.select(
        "ImageId", "InstanceType", "KeyName", "UserData", "SecurityGroupIds", "BlockDeviceMappings", "NetworkInterfaces"
    )
    if profile := properties.get("IamInstanceProfile"):
        data["IamInstanceProfile"] = {"Name": profile}
    if group := properties.get("PlacementGroupName"):
        data["Placement"] = {"GroupName": group}
    cards = [dict(card) for card in data.get("NetworkInterfaces", [])]
    for card in cards:
        card["Groups"] = card.pop("GroupSet", [])
    written: dict[str, Any] = typed(data | ({"NetworkInterfaces": cards} if cards else {}))
    return written


def _find_primary(data: Mapping[str, Any]) -> Mapping[str, Any]:
    cards: list[Mapping[str, Any]] = data.get("NetworkInterfaces", [])
    return next((card for card in cards if card.get("DeviceIndex", 0) == 0), {})


def _require_one_place(creation: Creation, data: Mapping[str, Any], subnet_id: str) -> None:
    """
    Refuse an instance that would be in two places.

    The words for a security group of another VPC are those of ansible/ansible-modules-core#347; for another zone than
    that of the subnet, the rehearsal's own.
    """
    ec2 = creation.client("ec2")
    subnet = ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"][0]
    groups = _find_primary(data).get("Groups") or data.get("SecurityGroupIds", [])
    for group in ec2.describe_security_groups(GroupIds=groups)["SecurityGroups"] if groups else ():
        if group["VpcId"] != subnet["VpcId"]:
            message = f"Security group {group['GroupId']} and subnet {subnet_id} belong to different networks."
            raise LaunchError("InvalidParameter", message)
    if (zone := creation.properties.get("AvailabilityZone", subnet["AvailabilityZone"])) != subnet["AvailabilityZone"]:
        raise LaunchError("InvalidParameterValue", f"Subnet {subnet_id} is in {subnet['AvailabilityZone']}, not {zone}")


def _change_attributes(creation: Creation, instance_id: str) -> None:
    modify, properties = creation.client("ec2").modify_instance_attribute, creation.properties
    for name in ("SourceDestCheck", "DisableApiTermination"):
        if name in properties:
            modify(InstanceId=instance_id, **{name: {"Value": is_true(properties[name])}})


def _describe(creation: Creation, instance_id: str, key: str) -> str:
    answer = creation.client("ec2").describe_instances(InstanceIds=[instance_id])
    return str(answer["Reservations"][0]["Instances"][0].get(key, ""))


def _create_key_pair(creation: Creation) -> Created:
    """Import a key, or create one, whose private part goes to SSM as `/ec2/keypair/<id>` (template reference)."""
    ec2, properties = creation.client("ec2"), creation.properties
    name, tags = properties["KeyName"], specify_tags(creation, "key-pair")
    undo: list[Callable[[], Any]] = [partial(ec2.delete_key_pair, KeyName=name)]

    def delete() -> None:
        for each in undo:
            each()

    if "PublicKeyMaterial" in properties:
        key = ec2.import_key_pair(KeyName=name, PublicKeyMaterial=properties["PublicKeyMaterial"].encode(), **tags)
    else:
        key = ec2.create_key_pair(KeyName=name, **properties.select("KeyType", "KeyFormat"), **tags)
        ssm, parameter = creation.client("ssm"), f"/ec2/keypair/{key['KeyPairId']}"
        ssm.put_parameter(Name=parameter, Value=key["KeyMaterial"], Type="SecureString")
        undo.append(partial(ssm.delete_parameter, Name=parameter))
    attributes = {"KeyPairId": key["KeyPairId"], "KeyFingerprint": key["KeyFingerprint"]}
    return Created(name, attributes, delete=delete)


CREATORS: dict[str, Creator] = {
    "AWS::EC2::Instance": _create_instance,
    "AWS::EC2::KeyPair": _create_key_pair,
}
