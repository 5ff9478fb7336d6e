"""Checks of the props of FSx for Lustre, and of what it is linked to."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import jsii
from aws_cdk import RemovalPolicy, Size
from aws_cdk import aws_ec2 as ec2
from constructs import IValidation

from deeplearning_cdk.props.check import Rule
from deeplearning_cdk.props.rules import count_gibibytes, matching, sized
from deeplearning_cdk.storage.data_source import DataSource

LustreDeployment = Literal["persistent", "scratch"]

DEFAULT_GIBIBYTES = 1200
# FSx for Lustre user guide: SSD storage of PERSISTENT_2 and SCRATCH_2, throughput of PERSISTENT_2.
_STEP_GIBIBYTES = 2400
# Far above every quota of an account.
_MOST_GIBIBYTES = 2400 * 1000
_THROUGHPUTS = (125, 250, 500, 1000)
_KEEPING = (RemovalPolicy.RETAIN, RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
_MOST_LINKS = 8
"""FSx for Lustre quotas: data repository associations of a file system."""
_COPY = "copy it from there"


def _is_storage(size: Size | int) -> bool:
    gibibytes = count_gibibytes(size)
    return gibibytes == DEFAULT_GIBIBYTES or gibibytes % _STEP_GIBIBYTES == 0


LustreStorage = Annotated[
    Size | int,
    sized(DEFAULT_GIBIBYTES, _MOST_GIBIBYTES, f"pass e.g. Size.gibibytes({DEFAULT_GIBIBYTES})"),
    Rule(
        must=f"be {DEFAULT_GIBIBYTES} GiB or a multiple of {_STEP_GIBIBYTES} GiB",
        remedy=f"pass e.g. Size.gibibytes({_STEP_GIBIBYTES})",
        is_kept=_is_storage,
        can_carry=lambda _: True,
    ),
]
"""Size of a file system; a number is GiB."""

LustreThroughput = Annotated[
    int,
    Rule(
        must=f"be {', '.join(map(str, _THROUGHPUTS))} MB/s for each TiB",
        remedy="take one of them",
        is_kept=lambda throughput: throughput in _THROUGHPUTS,
        can_carry=lambda _: True,
    ),
]
"""Throughput of each TiB of persistent storage, in MB/s."""

LustreDnsName = Annotated[
    str, matching(r"[A-Za-z0-9.-]{1,253}", "be as `aws fsx describe-file-systems` shows it", _COPY, takes_tokens=True)
]
LustreMountName = Annotated[
    str, matching(r"[A-Za-z0-9_-]{1,32}", "be as `aws fsx describe-file-systems` shows it", _COPY, takes_tokens=True)
]


def check_throughput(deployment: str, throughput: int | None, *, has_key: bool) -> int | None:
    """
    Return the throughput of each TiB, in MB/s; None where the deployment has a fixed one.

    Args:
        deployment: Whether it lasts.
        throughput: Default: 125 for a persistent one.
        has_key: Whether a key was given for it.

    Raises:
        ValueError: A scratch file system was given a throughput or a key.
    """
    if deployment == "scratch":
        for prop, is_given in (("throughput", throughput is not None), ("encryption_key", has_key)):
            if is_given:
                raise ValueError(
                    f"{prop} must be left out with deployment scratch, which has its own, got one; "
                    "leave it out, or take a persistent one"
                )
        return None
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


def choose_subnet(vpc: ec2.IVpc | None, subnet: ec2.ISubnet | None) -> tuple[ec2.IVpc, ec2.ISubnet] | None:
    """
    Return where the file system lives: in the user's subnet, or the VPC's first private one; None without a VPC.

    Raises:
        ValueError: A subnet was given without its VPC, or the VPC has no private one.
    """
    if vpc is None:
        if subnet is not None:
            raise ValueError("vpc must be given with subnet, got none; pass the subnet's VPC, or leave subnet out")
        return None
    for private in (subnet, *vpc.private_subnets, *vpc.isolated_subnets):
        if private is not None:
            return vpc, private
    raise ValueError("subnet must be given when the vpc has no private subnet, got none; pass one of its subnets")


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
