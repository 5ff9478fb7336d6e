"""Launches and terminates EC2 instances, single ones and those of Auto Scaling groups and EMR clusters."""

import base64
import ipaddress
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.capacity_pools import Capacity, PlacedLaunch
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError, LaunchFault, key_refusal
from cdk_rehearsal.embedded_aws.base.principals import PrincipalRegistry
from cdk_rehearsal.embedded_aws.base.scaling_group import ScalingGroup
from cdk_rehearsal.embedded_aws.ec2.images import ImageCatalogue
from cdk_rehearsal.embedded_aws.ec2.launch_rules import find_obstacles, find_wrong_architecture
from cdk_rehearsal.embedded_aws.file_systems import LustreFileSystems, find_access_points, find_mount_targets
from cdk_rehearsal.machine import ImagePart, Machine
from cdk_rehearsal.place import Credentials, Place

_METADATA_KEY = re.compile(r"[0-9a-zA-Z\-_+=,.@:]{1,255}")
_RESERVED_KEYS = frozenset({".", "..", "_index"})


@dataclass(frozen=True)
class LaunchOrder:
    """
    One instance to launch.

    Attributes:
        name: The group or the cluster that the instance belongs to; a single one's logical id.
        data: The data of a launch template, with the image resolved.
        subnet_ids: The subnets to choose from.
        tags: Tags of the instance beside those of the data.
        placement_group: Name of the placement group. Default: none beside that of the data.
        taken_zones: Zones of the instances that are there, of which the next one prefers others. Default: none.
        login_user: The login user. Default: the image's own.
        parts: What is on the instance beside the parts of its image. Default: nothing.
        volume_tags: Tags of its volumes. Default: none.
    """

    name: str
    data: Mapping[str, Any]
    subnet_ids: Sequence[str]
    tags: Mapping[str, str]
    placement_group: str = ""
    taken_zones: Sequence[str] = ()
    login_user: str = ""
    parts: frozenset[ImagePart] = frozenset()
    volume_tags: Mapping[str, str] = field(default_factory=dict)


def collect_tags(data: Mapping[str, Any], more: Mapping[str, str]) -> dict[str, str]:
    """
    Return the tags of an instance: the launch template's, then those of its group.

    A key that is not fit for a URL is refused where instance metadata shows the tags (EC2 User Guide).
    """
    tags = {
        tag["Key"]: tag["Value"]
        for specification in data.get("TagSpecifications", [])
        if specification["ResourceType"] == "instance"
        for tag in specification["Tags"]
    }
    tags |= more
    if data.get("MetadataOptions", {}).get("InstanceMetadataTags") == "enabled":
        for key in tags:
            if not _METADATA_KEY.fullmatch(key) or key in _RESERVED_KEYS:
                raise LaunchError(
                    "InvalidParameterValue",
                    f"'{key}' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{{1,255}}), "
                    "and must not be a reserved name ('.', '..', '_index')",
                )
    return tags


_RESERVED_BY_AWS = 4
"""Network address, router, DNS and one for the future, at the start of each subnet (VPC User Guide)."""


@dataclass(frozen=True)
class _Subnet:
    id: str
    zone: str
    network: ipaddress.IPv4Network
    is_public: bool
    vpc_networks: tuple[str, ...]


class InstanceLauncher:
    """Launches instances; `admits_volume` decides whether Auto Scaling may make a volume with a key, by its ARN."""

    def __init__(
        self,
        place: Place,
        principals: PrincipalRegistry,
        images: ImageCatalogue,
        label: Callable[[Mapping[str, str], str], str],
        capacity: Capacity,
    ) -> None:
        self.label = label
        self.lustre = LustreFileSystems(place)
        self.admits_volume: Callable[[str], bool] = lambda _: True
        self._place = place
        self._principals = principals
        self._images = images
        self._capacity = capacity
        self._lock = threading.Lock()

    def describe_template(self, group: ScalingGroup) -> dict[str, Any]:
        """Return the data of the group's launch template or configuration, with the image resolved."""
        if group.launch_configuration is not None:
            return dict(group.launch_configuration.data)
        return self.read_template(group.launch_template_id, group.launch_template_version)

    def read_template(self, template_id: str, version: str) -> dict[str, Any]:
        """Return the data of a version of a launch template, with the image resolved."""
        answer = self._place.client("ec2").describe_launch_template_versions(
            LaunchTemplateId=template_id, Versions=[version]
        )
        data: dict[str, Any] = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        image = str(data.get("ImageId", ""))
        if image.startswith("resolve:ssm:"):
            name = image.removeprefix("resolve:ssm:")
            data["ImageId"] = self._place.client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
        return data

    def order_for(self, group: ScalingGroup) -> LaunchOrder:
        """Return the order for the next instance of a group; LaunchError where its launch template is gone."""
        with _as_launch_error():
            data = self.describe_template(group)
        return LaunchOrder(
            group.name,
            data,
            group.subnet_ids,
            group.launch_tags,
            group.placement_group,
            tuple(instance.zone for instance in group.active),
        )

    def launch(self, order: LaunchOrder, fault: LaunchFault | None = None) -> Machine:
        """Launch one instance; raise LaunchError where EC2 refuses."""
        with _as_launch_error():
            subnet = self._choose_subnet(order)
            if fault is not None and not fault.ends_instance:
                raise fault.to_error(instance_type=order.data.get("InstanceType", "m1.small"), zone=subnet.zone)
            placed = PlacedLaunch.read(order.data, subnet.zone)
            with self._lock:  # capacity and a free address are found and taken at once
                self._capacity.require(placed)
                address = self.free_address(subnet.id)
                instance_id = self._run(order, subnet, address)
                self._capacity.living[instance_id] = placed
            return self._describe(order, subnet, address, instance_id)

    def find_end(self, order: LaunchOrder, machine: Machine, fault: LaunchFault | None) -> LaunchError | None:
        """Return why EC2 ends an instance before it is in service: a volume's key, or the fault; None: it does not."""
        if fault is not None:
            return fault.to_error(instance_type=machine.instance_type, zone=machine.zone)
        return None if self._admits_volumes(order.data) else key_refusal()

    def find_obstacles(self, data: Mapping[str, Any], placement_group: str = "") -> Iterator[LaunchError]:
        """Yield why EC2 refuses, or ends, every launch of a template, whenever and wherever it comes."""
        yield from find_obstacles(data, self._place, self._images.root_volume, placement_group)
        if not self._admits_volumes(data):
            yield key_refusal()

    def _admits_volumes(self, data: Mapping[str, Any]) -> bool:
        disks = (mapping.get("Ebs", {}) for mapping in data.get("BlockDeviceMappings", []))
        keys = {str(disk["KmsKeyId"]) for disk in disks if disk.get("KmsKeyId")}
        return all(map(self.admits_volume, sorted(keys)))

    def terminate(self, instance_id: str) -> None:
        """Terminate an instance."""
        self._place.client("ec2").terminate_instances(InstanceIds=[instance_id])
        with self._lock:
            self._capacity.living.pop(instance_id, None)

    def free_address(self, subnet_id: str) -> str:
        """Return the lowest free address of a subnet that AWS does not keep for itself."""
        ec2 = self._place.client("ec2")
        network = ipaddress.IPv4Network(ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"][0]["CidrBlock"])
        pages = ec2.get_paginator("describe_network_interfaces").paginate(
            Filters=[{"Name": "subnet-id", "Values": [subnet_id]}]
        )
        taken = {
            entry["PrivateIpAddress"]
            for page in pages
            for interface in page["NetworkInterfaces"]
            for entry in interface.get("PrivateIpAddresses", [])
        }
        for number in range(_RESERVED_BY_AWS, network.num_addresses - 1):
            if str(network[number]) not in taken:
                return str(network[number])
        raise LaunchError(
            "InsufficientFreeAddressesInSubnet",
            f"There are not enough free addresses in subnet '{subnet_id}' to satisfy the requested number of "
            "instances.",
        )

    def _choose_subnet(self, order: LaunchOrder) -> _Subnet:
        ec2 = self._place.client("ec2")
        answer = ec2.describe_subnets(SubnetIds=list(order.subnet_ids))["Subnets"]
        counts = {entry["SubnetId"]: 0 for entry in answer}
        for zone in order.taken_zones:
            for entry in answer:
                counts[entry["SubnetId"]] += entry["AvailabilityZone"] == zone
        chosen = min(answer, key=lambda entry: counts[entry["SubnetId"]])
        vpc = ec2.describe_vpcs(VpcIds=[chosen["VpcId"]])["Vpcs"][0]
        return _Subnet(
            chosen["SubnetId"],
            chosen["AvailabilityZone"],
            ipaddress.IPv4Network(chosen["CidrBlock"]),
            bool(chosen.get("MapPublicIpOnLaunch")),
            tuple(entry["CidrBlock"] for entry in vpc["CidrBlockAssociationSet"]),
        )

    def _run(self, order: LaunchOrder, subnet: _Subnet, address: str) -> str:
        data, kind = order.data, order.data.get("InstanceType", "m1.small")
        self._require_type(kind, subnet.zone)
        for wrong in find_wrong_architecture(data, self._place):
            raise LaunchError("InvalidParameterValue", wrong)
        for obstacle in find_obstacles(data, self._place, self._images.root_volume, order.placement_group):
            raise obstacle
        primary: Mapping[str, Any] = next(
            (card for card in data.get("NetworkInterfaces", []) if card.get("DeviceIndex", 0) == 0), {}
        )
        interface = {
            "DeviceIndex": 0,
            "SubnetId": subnet.id,
            "PrivateIpAddress": address,
            "Groups": primary.get("Groups") or data.get("SecurityGroupIds", []),
            "AssociatePublicIpAddress": primary.get("AssociatePublicIpAddress", subnet.is_public),
        }
        tags = {"instance": collect_tags(data, order.tags), "volume": order.volume_tags}
        request: dict[str, Any] = {
            "ImageId": data["ImageId"],
            "InstanceType": kind,
            "MinCount": 1,
            "MaxCount": 1,
            "NetworkInterfaces": [interface],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in own.items()]}
                for kind, own in tags.items()
                if own
            ],
            "UserData": base64.b64decode(data.get("UserData", "")).decode("latin-1"),
        }
        for name in ("KeyName", "IamInstanceProfile", "BlockDeviceMappings"):
            if data.get(name):
                request[name] = data[name]
        if "MetadataOptions" in data:
            options = {"HttpTokens", "HttpPutResponseHopLimit", "HttpEndpoint", "InstanceMetadataTags"}
            request["MetadataOptions"] = {k: v for k, v in data["MetadataOptions"].items() if k in options}
        answer = self._place.client("ec2").run_instances(**request)
        return str(answer["Instances"][0]["InstanceId"])

    def _require_type(self, kind: str, zone: str) -> None:
        try:
            answer = self._place.client("ec2").describe_instance_types(InstanceTypes=[kind])["InstanceTypes"]
        except ClientError:
            answer = []
        if not answer or kind in self._capacity.missing_types.get(zone, ()):
            raise LaunchError(
                "Unsupported",
                f"Your requested instance type ({kind}) is not supported in your requested Availability Zone ({zone}).",
            )

    def _describe(self, order: LaunchOrder, subnet: _Subnet, address: str, instance_id: str) -> Machine:
        data = order.data
        tags = collect_tags(data, order.tags)
        kind = self.label(tags, order.name)
        role_name, role_arn = self._instance_role(data)
        credentials = Credentials("", "")
        if role_arn:
            credentials = self._principals.mint(self._place, role_arn=role_arn, session=instance_id, kind=kind)
        return Machine(
            instance_id=instance_id,
            address=address,
            prefix_length=subnet.network.prefixlen,
            vpc_networks=subnet.vpc_networks,
            instance_type=data.get("InstanceType", "m1.small"),
            zone=subnet.zone,
            region=self._place.region,
            image_id=data["ImageId"],
            user_data=base64.b64decode(data.get("UserData", "")),
            role_name=role_name,
            access_key_id=credentials.access_key_id,
            secret_access_key=credentials.secret_access_key,
            session_token=credentials.session_token,
            tags=tags,
            login_user=order.login_user or self._images.login_user(data["ImageId"]),
            public_key=self._public_key(data.get("KeyName", "")),
            mount_targets=find_mount_targets(self._place, subnet.zone),
            lustre=self.lustre.describe(),
            access_points=find_access_points(self._place),
            image_parts=self._images.parts(data["ImageId"]) | order.parts,
        )

    def _instance_role(self, data: Mapping[str, Any]) -> tuple[str, str]:
        profile = data.get("IamInstanceProfile", {})
        name = profile.get("Name") or str(profile.get("Arn", "")).rpartition("/")[2]
        if not name:
            return "", ""
        role = self._place.client("iam").get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"][0]
        return role["RoleName"], role["Arn"]

    def _public_key(self, name: str) -> str:
        if not name:
            return ""
        answer = self._place.client("ec2").describe_key_pairs(KeyNames=[name], IncludePublicKey=True)
        return str(answer["KeyPairs"][0].get("PublicKey", ""))


@contextmanager
def _as_launch_error() -> Iterator[None]:
    """Turn a refusal of EC2's API into LaunchError."""
    try:
        yield
    except ClientError as error:
        raise LaunchError(error.response["Error"]["Code"], error.response["Error"]["Message"]) from error
