"""Checks of the cluster's props that need nothing but their values."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aws_cdk import Duration, Size, Token
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.looked_up import is_stand_in
from deeplearning_cdk.subnet_sizes import is_everyone, is_ipv4_network

DEFAULT_WORKERS = 3

_MOUNT_POINT = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9._-]*)+")
# A mount over one of these would hide the system from itself.
_SYSTEM_FOLDERS = frozenset(
    "/bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /run /sbin /sys /tmp /usr /var /opt/deeplearning".split()  # noqa: SIM905
)
_IMAGE_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE_SYSTEM_ID = re.compile(r"fs-[0-9a-f]{8}([0-9a-f]{9})?")
_SHORTEST_MARGIN_SECONDS, _LONGEST_MARGIN_SECONDS = 180, 300
_SHORTEST_SETUP_MINUTES, _LONGEST_SETUP_MINUTES = 10, 12 * 60
# EFS quotas: provisioned throughput.
_LEAST_MEBIBYTES, _MOST_MEBIBYTES = 1, 3414

FileSystemThroughput = Literal["elastic", "bursting"] | Size
"""How the throughput of a new file system is provided; a size is what it provides each second."""


@dataclass(frozen=True)
class WorkerCapacity:
    """How many workers: the fewest that are worth training with, the number to launch, the most to scale to."""

    minimum: int
    desired: int
    maximum: int


def check_capacity(minimum: int | None, desired: int | None, maximum: int | None) -> WorkerCapacity:
    """
    Fill in and check the workers' capacities.

    Args:
        minimum: Default: 1, or 0 with no workers.
        desired: Default: 3, or the next number that the others allow.
        maximum: Default: the desired one.

    Raises:
        ValueError: One is below 0, or they are out of order.
    """
    given = {"min": minimum, "desired": desired, "max": maximum}
    for name, value in given.items():
        if value is not None and Token.is_unresolved(value):
            raise ValueError(f"worker_{name}_capacity must be known at synth, got a token; pass a number")
        if value is not None and value < 0:
            raise ValueError(f"worker_{name}_capacity must be at least 0, got {value}; raise it")
    wanted = (
        desired
        if desired is not None
        else max(minimum or 0, min(DEFAULT_WORKERS, DEFAULT_WORKERS if maximum is None else maximum))
    )
    if minimum is not None and minimum > wanted:
        raise ValueError(
            f"worker_min_capacity must not exceed worker_desired_capacity, got {minimum} > {wanted}; "
            "lower it or raise worker_desired_capacity"
        )
    if maximum is not None and wanted > maximum:
        raise ValueError(
            f"worker_desired_capacity must not exceed worker_max_capacity, got {wanted} > {maximum}; "
            "lower it or raise worker_max_capacity"
        )
    return WorkerCapacity(
        minimum=min(1, wanted) if minimum is None else minimum,
        desired=wanted,
        maximum=wanted if maximum is None else maximum,
    )


def check_mount_point(mount_point: str) -> str:
    """
    Check that a mount point is a clean absolute path; it is written into user data as it is.

    Raises:
        ValueError: It is not.
    """
    if Token.is_unresolved(mount_point) or not _MOUNT_POINT.fullmatch(mount_point):
        raise ValueError(
            f"mount_point must be an absolute path of letters, digits and ._- without '..' or a last slash, "
            f"got {mount_point!r}; write e.g. /efs"
        )
    if mount_point in _SYSTEM_FOLDERS:
        raise ValueError(f"mount_point must not be a folder of the system, got {mount_point!r}; write e.g. /efs")
    return mount_point


def check_setup_timeout(timeout: Duration) -> int:
    """
    Check the stack's time-out and return what of it the nodes may use, in seconds.

    The nodes stop earlier than CloudFormation, so that their reason and not its time-out is what the user reads.

    Raises:
        ValueError: It is too short to boot in, or longer than CloudFormation waits.
    """
    minutes = timeout.to_minutes(integral=False)
    if not _SHORTEST_SETUP_MINUTES <= minutes <= _LONGEST_SETUP_MINUTES:
        raise ValueError(
            f"setup_timeout must be from {_SHORTEST_SETUP_MINUTES} minutes to {_LONGEST_SETUP_MINUTES // 60} hours, "
            f"got {minutes:g} minutes; the default is 55 minutes"
        )
    seconds = int(timeout.to_seconds())
    return seconds - min(_LONGEST_MARGIN_SECONDS, max(_SHORTEST_MARGIN_SECONDS, seconds // 5))


def read_ssh_peer(peer: str | ec2.IPeer | None) -> ec2.IPeer | None:
    """
    Return who may open an SSH connection to the master.

    Raises:
        ValueError: It is a text that is not an IPv4 network or prefix list, or it is everyone: 0.0.0.0/0 and ::/0 in
            any form, also in halves and quarters.
    """
    networks: list[str | None] = [peer] if isinstance(peer, str) else []
    if peer is not None and not isinstance(peer, str):
        rule: Any = peer.to_ingress_rule_config()
        networks = [rule.cidr_ip, rule.cidr_ipv6]
    for text in networks:
        if text is not None and is_everyone(text):
            raise ValueError(f"ssh_peer must not be everyone, got {text!r}; name your own network, e.g. 203.0.113.7/32")
    if not isinstance(peer, str):
        return peer
    if peer.startswith("pl-"):
        return ec2.Peer.prefix_list(peer)
    if not is_ipv4_network(peer):
        raise ValueError(f"ssh_peer must be an IPv4 network, got {peer!r}; write e.g. 203.0.113.7/32")
    return ec2.Peer.ipv4(peer)


def check_file_system_id(file_system_id: str | None) -> None:
    """
    Check the id of an existing file system.

    Raises:
        ValueError: It is neither a token nor `fs-` with 8 or 17 hex digits.
    """
    if file_system_id is None or Token.is_unresolved(file_system_id) or is_stand_in(file_system_id):
        return
    if not _FILE_SYSTEM_ID.fullmatch(file_system_id):
        raise ValueError(
            f"file_system_id must be fs- and 8 or 17 hex digits, got {file_system_id!r}; "
            "list yours with `aws efs describe-file-systems`"
        )


def check_throughput(throughput: FileSystemThroughput | None, file_system_id: str | None) -> None:
    """
    Check how the throughput of a new file system is provided.

    Raises:
        ValueError: EFS has no such throughput, or the file system is not made here.
    """
    if throughput is None:
        return
    if file_system_id is not None:
        raise ValueError(
            f"file_system_throughput must be left out with file_system_id, got both; {file_system_id} has its own"
        )
    if isinstance(throughput, Size):
        mebibytes = throughput.to_mebibytes()
        if not _LEAST_MEBIBYTES <= mebibytes <= _MOST_MEBIBYTES:
            raise ValueError(
                f"file_system_throughput must be {_LEAST_MEBIBYTES} to {_MOST_MEBIBYTES} MiB each second, "
                f"got {mebibytes:g}; take elastic for more"
            )
    elif throughput not in ("elastic", "bursting"):
        raise ValueError(
            f"file_system_throughput must be elastic, bursting or a size for each second, got {throughput!r}; "
            "write e.g. Size.mebibytes(128)"
        )


def check_scripts(**paths: str | None) -> None:
    """
    Check that scripts of the user's can be run.

    Args:
        paths: The user's prop -> the script's path, or None without one.

    Raises:
        ValueError: One is not a file, or does not say what runs it.
    """
    for prop, path in paths.items():
        if path is None:
            continue
        if not Path(path).is_file():
            raise ValueError(f"{prop} must be a file, got {path!r}; pass its path from {Path.cwd()}")
        if not Path(path).read_bytes().startswith(b"#!"):
            raise ValueError(f"{prop} must say what runs it, got {path!r} without #!; begin it with e.g. #!/bin/bash")


def check_image_release(release: str) -> str:
    """
    Check the word by which the image's release is chosen anew.

    Raises:
        ValueError: It is no short word.
    """
    if Token.is_unresolved(release) or not _IMAGE_RELEASE.fullmatch(release):
        raise ValueError(
            f"image_release must be 1 to 64 letters, digits and ._-, got {release!r}; write e.g. the day, 2026-11-22"
        )
    return release
