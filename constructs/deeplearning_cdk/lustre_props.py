"""Checks of the props of FSx for Lustre, and of what it is linked to."""

import re
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import jsii
from aws_cdk import RemovalPolicy, Size, Token
from constructs import IValidation

from deeplearning_cdk.data_source import DataSource

LustreDeployment = Literal["persistent", "scratch"]

DEFAULT_GIBIBYTES = 1200
# FSx for Lustre user guide: SSD storage of PERSISTENT_2 and SCRATCH_2, throughput of PERSISTENT_2.
_STEP_GIBIBYTES = 2400
_THROUGHPUTS = (125, 250, 500, 1000)
_KEEPING = (RemovalPolicy.RETAIN, RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
_MOST_LINKS = 8
"""FSx for Lustre quotas: data repository associations of a file system."""
_DNS_NAME = re.compile(r"[A-Za-z0-9.-]{1,253}")
_MOUNT_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


def check_storage(storage: Size | None) -> int:
    """
    Return the size in GiB.

    Args:
        storage: Default: 1200 GiB.

    Raises:
        ValueError: FSx has no such size.
    """
    size = storage.to_gibibytes() if storage else DEFAULT_GIBIBYTES
    if size != DEFAULT_GIBIBYTES and (size <= 0 or size % _STEP_GIBIBYTES):
        raise ValueError(
            f"storage must be 1200 GiB, 2400 GiB or a multiple of {_STEP_GIBIBYTES} GiB, got {size:g} GiB; "
            f"take {max(1, -(-int(size) // _STEP_GIBIBYTES)) * _STEP_GIBIBYTES} GiB"
        )
    return int(size)


def check_throughput(deployment: str, throughput: int | None, *, has_key: bool) -> int | None:
    """
    Return the throughput of each TiB, in MB/s; None where the deployment has a fixed one.

    Args:
        deployment: Whether it lasts.
        throughput: Default: 125 for a persistent one.
        has_key: Whether a key was given for it.

    Raises:
        ValueError: FSx has no such deployment or throughput, or a scratch file system was given either.
    """
    if deployment not in get_args(LustreDeployment):
        raise ValueError(f"deployment must be persistent or scratch, got {deployment!r}; write one of them")
    if deployment == "scratch":
        for prop, is_given in (("throughput", throughput is not None), ("encryption_key", has_key)):
            if is_given:
                raise ValueError(
                    f"{prop} must be left out with deployment scratch, which has its own, got one; "
                    "leave it out, or take a persistent one"
                )
        return None
    if throughput is not None and throughput not in _THROUGHPUTS:
        raise ValueError(
            f"throughput must be {', '.join(map(str, _THROUGHPUTS))} MB/s for each TiB, got {throughput}; "
            "take one of them"
        )
    return throughput or _THROUGHPUTS[0]


def check_links(data: Sequence[DataSource]) -> list[DataSource]:
    """
    Check what one file system shows, and return it without what stands there twice.

    Raises:
        ValueError: Two are in one folder or overlap in S3, or they are more than FSx links.
    """
    links = {(source.name, source.bucket_name, source.key): source for source in data}
    ordered = [links[key] for key in sorted(links)]
    for index, source in enumerate(ordered):
        for other in ordered[index + 1 :]:
            is_nested = source.key.startswith(other.key) or other.key.startswith(source.key)
            if source.name == other.name or (source.bucket_name == other.bucket_name and is_nested):
                raise ValueError(
                    f"data must not overlap on lustre, got {source.name} and {other.name} with {source.key!r} and "
                    f"{other.key!r}; declare the larger one alone, or give them different names and prefixes"
                )
    if len(ordered) > _MOST_LINKS:
        raise ValueError(
            f"data must be {_MOST_LINKS} links at most on lustre, got {len(ordered)}; "
            "declare a prefix that holds several of them"
        )
    return ordered


def check_removal(policy: RemovalPolicy | None, *, has_vpc: bool) -> RemovalPolicy:
    """
    Return what becomes of the file system with the stack.

    Raises:
        ValueError: It should stay in a subnet that goes.
    """
    if policy in _KEEPING and not has_vpc:
        raise ValueError(
            f"vpc must be given with the removal_policy {policy.value if policy else ''}, got none; "
            "pass a VPC that stays too, since a file system that stays holds its subnet, or leave removal_policy out"
        )
    return policy or (RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if has_vpc else RemovalPolicy.DESTROY)


def check_mount_names(dns_name: str, mount_name: str) -> None:
    """
    Check by what an existing file system is mounted; it is written into user data as it is.

    Raises:
        ValueError: A name is not one.
    """
    for prop, value, pattern in (("dns_name", dns_name, _DNS_NAME), ("mount_name", mount_name, _MOUNT_NAME)):
        if not Token.is_unresolved(value) and not pattern.fullmatch(value):
            raise ValueError(
                f"{prop} must be as `aws fsx describe-file-systems` shows it, got {value!r}; copy it from there"
            )


@jsii.implements(IValidation)
class RequiredNetwork:
    """
    Refuses a file system that nobody mounts and that has no VPC, since it would silently not be made.

    Args:
        path: Its construct's path, for the message.
        has_network: Tells whether it was made.
    """

    def __init__(self, path: str, has_network: Callable[[], bool]) -> None:
        self._path = path
        self._has_network = has_network

    def validate(self) -> list[str]:
        """Return what is wrong, as CDK asks at synth."""
        if self._has_network():
            return []
        return [f"lustre must have a network, got none for {self._path}; pass it to a TrainingCluster, or give it vpc"]
