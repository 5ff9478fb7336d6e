"""Checks of the props of FSx for Lustre, and what a link to a bucket is."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import jsii
from aws_cdk import RemovalPolicy, Size, Token
from aws_cdk import aws_s3 as s3
from constructs import IValidation

from deeplearning_cdk.data_source import DataSource

LustreDeployment = Literal["persistent", "scratch"]

DEFAULT_GIBIBYTES = 1200
# FSx for Lustre user guide: SSD storage of PERSISTENT_2 and SCRATCH_2, throughput of PERSISTENT_2.
_STEP_GIBIBYTES = 2400
_THROUGHPUTS = (125, 250, 500, 1000)
_KEEPING = (RemovalPolicy.RETAIN, RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"([A-Za-z0-9!_.'()-]+/)*")
_DNS_NAME = re.compile(r"[A-Za-z0-9.-]{1,253}")
_MOUNT_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


@dataclass(frozen=True)
class BucketLink:
    """
    A link of the file system to a bucket.

    Attributes:
        bucket: The bucket's name, which may be a token.
        prefix: What of it is shown; empty for all.
    """

    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        """The S3 side of the link."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def path(self) -> str:
        """The file system's side: an object with the key `a/b` is the file `a/b`, whatever the prefix."""
        return f"/{self.prefix.rstrip('/')}"

    def holds(self, source: DataSource) -> bool:
        """Tell whether a source lies in it."""
        return source.bucket_name == self.bucket and source.key.startswith(self.prefix)


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


def check_link(bucket: s3.IBucket | str | None, prefix: str) -> BucketLink | None:
    """
    Return the link to a bucket; None without one.

    Raises:
        ValueError: The bucket has no bucket's name, or the prefix is none that is a folder.
    """
    if bucket is None:
        if prefix:
            raise ValueError(f"data_bucket must be given with data_prefix, got only {prefix!r}; pass the bucket")
        return None
    name = bucket if isinstance(bucket, str) else bucket.bucket_name
    if not Token.is_unresolved(name) and not _BUCKET.fullmatch(name):
        raise ValueError(f"data_bucket must be a bucket's name, got {name!r}; leave s3:// and / out")
    if Token.is_unresolved(prefix) or not _PREFIX.fullmatch(prefix):
        raise ValueError(f"data_prefix must be folders that end with /, got {prefix!r}; write e.g. train/")
    return BucketLink(name, prefix)


def check_export(link: BucketLink | None, *, is_exporting: bool) -> bool:
    """
    Return whether changes go back to the bucket.

    Raises:
        ValueError: There is no bucket.
    """
    if is_exporting and link is None:
        raise ValueError("data_bucket must be given with export, got none; pass the bucket, or leave export out")
    return is_exporting


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
