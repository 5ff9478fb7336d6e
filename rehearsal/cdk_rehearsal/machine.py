"""Instances as the embedded AWS describes them to the lab, and the lab as it sees it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

ImagePart = Literal["compilers", "pytorch", "python3.12", "ubuntu-22.04", "amazon-linux", "emr"]
"""Something that some images have and others have not."""


@dataclass(frozen=True)
class LustreTarget:
    """
    An FSx for Lustre file system, as an instance finds it.

    `files` has path from its root -> content: the objects of the linked buckets when the instance was launched.
    """

    dns_name: str
    mount_name: str
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class RootOwner:
    """User, group and permission bits of a directory that EFS makes."""

    uid: int
    gid: int
    mode: int


@dataclass(frozen=True)
class AccessPoint:
    """An EFS access point with its root directory; without an owner, EFS makes none that does not exist yet."""

    file_system_id: str
    path: str
    owner: RootOwner | None


@dataclass(frozen=True)
class Machine:
    """
    An EC2 instance as its Auto Scaling group or its EMR cluster launched it.

    Attributes:
        instance_id: EC2 instance id.
        address: Private IPv4 address, of the group's subnet.
        prefix_length: Length of the subnet's prefix.
        vpc_networks: The IPv4 blocks of the VPC.
        instance_type: EC2 instance type.
        zone: Availability zone.
        region: AWS region.
        image_id: AMI id.
        user_data: User data, decoded; empty without any.
        role_name: Name of the instance profile's role; empty without a profile.
        access_key_id: The role's credentials, minted for this instance.
        secret_access_key: The same.
        session_token: The same.
        tags: The instance's tags.
        login_user: The image's login user.
        public_key: OpenSSH public key of the launch template's key pair; empty without one.
        mount_targets: EFS file-system id -> IPv4 address of its mount target in the instance's zone.
        lustre: FSx for Lustre file-system id -> how it is mounted; zones other than its own reach it too.
        access_points: EFS access point id -> what it is.
        image_parts: What the image has beyond what all images have, and what a service puts on it.
    """

    instance_id: str
    address: str
    prefix_length: int
    vpc_networks: tuple[str, ...]
    instance_type: str
    zone: str
    region: str
    image_id: str
    user_data: bytes
    role_name: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    tags: Mapping[str, str]
    login_user: str
    public_key: str
    mount_targets: Mapping[str, str]
    lustre: Mapping[str, LustreTarget] = field(default_factory=dict)
    access_points: Mapping[str, AccessPoint] = field(default_factory=dict)
    image_parts: frozenset[ImagePart] = frozenset()


class MachineHost(Protocol):
    """Turns instances into running machines."""

    def boot(self, machine: Machine) -> None:
        """Start a machine; returns when it runs, which is before its user data ends."""

    def power_off(self, instance_id: str) -> None:
        """End a machine at once, as EC2 does on termination; an unknown or ended one is not an error."""


def make_machine_id(instance_id: str) -> str:
    """Return the machine id of an instance, which no other has."""
    return hashlib.sha256(instance_id.encode()).hexdigest()[:32]


def private_dns_name(machine: Machine) -> str:
    """Return the name that the VPC's DNS gives to the instance."""
    zone = "ec2.internal" if machine.region == "us-east-1" else f"{machine.region}.compute.internal"
    return f"{host_name(machine)}.{zone}"


def host_name(machine: Machine) -> str:
    """Return the instance's host name, made from its address."""
    return f"ip-{machine.address.replace('.', '-')}"
