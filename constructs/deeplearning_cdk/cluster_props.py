"""The props of a cluster with their rules, and the checks of props that depend on each other."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from aws_cdk import Duration, RemovalPolicy, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from deeplearning_cdk.network.subnet_sizes import LARGEST_SUBNET_ADDRESSES, is_everyone, is_ipv4_network
from deeplearning_cdk.props.check import Rule
from deeplearning_cdk.props.rules import between, count_mebibytes, is_arn, lasting, matching, sized

DEFAULT_WORKERS = 3

_SHORTEST_MARGIN_SECONDS, _LONGEST_MARGIN_SECONDS = 180, 300
# EFS quotas: provisioned throughput.
_LEAST_MEBIBYTES, _MOST_MEBIBYTES = 1, 3414
# EC2 API reference, EbsBlockDevice: gp3 has 1 to 65,536 GiB; older pages of AWS end at 16,384.
_LEAST_GIBIBYTES, _MOST_GIBIBYTES = 1, 65_536

_PREFIX_LIST = re.compile(r"pl-[0-9a-f]{8,17}")


def _admits_few(peer: str | ec2.IPeer) -> bool:
    rule: Any = None if isinstance(peer, str) else peer.to_ingress_rule_config()
    networks = [peer] if isinstance(peer, str) else [rule.cidr_ip, rule.cidr_ipv6]
    return not any(is_everyone(text) for text in networks if text is not None)


WorkerCount = Annotated[
    int,
    Rule(must="not be negative", remedy="pass 0 or more", is_kept=lambda count: count >= 0),
    between(0, LARGEST_SUBNET_ADDRESSES, "all workers live in one subnet, so take fewer"),
]
"""How many workers; the largest subnet has that many addresses."""

VolumeSize = Annotated[
    Size | int,
    sized(_LEAST_GIBIBYTES, _MOST_GIBIBYTES, "pass e.g. Size.gibibytes(300), and not below the image's"),
]
"""Size of a root volume; a number is GiB."""

_NOT_EVERYONE = Rule(must="not be everyone", remedy="name your own network, e.g. 203.0.113.7/32", is_kept=_admits_few)
_NETWORK = Rule(
    must="be an IPv4 network or the id of a prefix list",
    remedy="write e.g. 203.0.113.7/32",
    is_kept=lambda text: is_ipv4_network(text) or _PREFIX_LIST.fullmatch(text) is not None,
)
SshPeer = Annotated[str, _NOT_EVERYONE, _NETWORK] | Annotated[ec2.IPeer, _NOT_EVERYONE]
"""Who may open SSH to the master."""

KeyPair = (
    Annotated[
        str,
        matching(
            r"[A-Za-z0-9._:/=+@-]{1,255}",
            "be the name of an EC2 key pair of letters, digits and ._:/=+@-",
            "pass ec2.KeyPair.from_key_pair_name for a name with others",
            takes_tokens=True,
        ),
    ]
    | ec2.IKeyPair
)
"""The key pair of the login user."""

AvailabilityZone = Annotated[
    str,
    matching(
        r"[a-z][a-z0-9-]{1,63}", "be the name of an availability zone", "write e.g. us-east-1a", takes_tokens=True
    ),
]
"""Zone of all nodes."""

FileSystemId = Annotated[
    str,
    matching(
        r"fs-[0-9a-f]{8}([0-9a-f]{9})?",
        "be fs- and 8 or 17 hex digits",
        "list yours with `aws efs describe-file-systems`",
        takes_tokens=True,
    ),
]
"""Id of an existing file system."""

FileSystemThroughput = (
    Literal["elastic", "bursting"]
    | Annotated[
        Size,
        Rule(
            must=f"be from {_LEAST_MEBIBYTES} to {_MOST_MEBIBYTES} MiB each second",
            remedy="write e.g. Size.mebibytes(128), or elastic for more",
            is_kept=lambda size: _LEAST_MEBIBYTES <= count_mebibytes(size) <= _MOST_MEBIBYTES,
        ),
    ]
)
"""How the throughput of a new file system is provided; a size is what it provides each second."""

NewRemovalPolicy = Annotated[
    RemovalPolicy,
    Rule(
        must="not be SNAPSHOT",
        remedy="file systems have none; pass RETAIN_ON_UPDATE_OR_DELETE, RETAIN or DESTROY",
        is_kept=lambda policy: policy is not RemovalPolicy.SNAPSHOT,
    ),
]
"""What becomes of a new file system with the stack."""

SetupTimeout = Annotated[Duration, lasting(Duration.minutes(10), Duration.hours(12), "the default is 55 minutes")]
"""Time that the stack waits; CloudFormation waits no longer than 12 hours."""

ImageRelease = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "be 1 to 64 letters, digits and ._-", "write e.g. the day, 2026-11-22"
    ),
]
"""The word by which the image's release is chosen anew."""

EncryptionKey = Annotated[
    kms.IKey,
    Rule(
        must="have a plain ARN",
        remedy="write arn:aws:kms:region:account:key/id",
        is_kept=lambda key: is_arn("kms", key.key_arn),
    ),
]
"""The user's key."""

AlarmTopic = Annotated[
    sns.ITopic,
    Rule(
        must="have a plain ARN",
        remedy="write arn:aws:sns:region:account:name",
        is_kept=lambda topic: is_arn("sns", topic.topic_arn),
    ),
]
"""Where the user's alarms go."""


@dataclass(frozen=True)
class WorkerCapacity:
    """How many workers: the fewest that are worth training with, the number to launch, the most to scale to."""

    minimum: int
    desired: int
    maximum: int


def check_capacity(minimum: int | None, desired: int | None, maximum: int | None) -> WorkerCapacity:
    """
    Fill in the workers' capacities and check their order.

    Args:
        minimum: Default: 1, or 0 with no workers.
        desired: Default: 3, or the next number that the others allow.
        maximum: Default: the desired one.

    Raises:
        ValueError: They are out of order.
    """
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


def count_setup_seconds(timeout: Duration) -> int:
    """
    Return what of the stack's time-out the nodes may use, in seconds.

    The nodes stop earlier than CloudFormation, so that their reason and not its time-out is what the user reads.
    """
    seconds = int(timeout.to_seconds())
    return seconds - min(_LONGEST_MARGIN_SECONDS, max(_SHORTEST_MARGIN_SECONDS, seconds // 5))


def make_peer(peer: str | ec2.IPeer | None) -> ec2.IPeer | None:
    """Return who may open SSH to the master as a peer."""
    if not isinstance(peer, str):
        return peer
    return ec2.Peer.prefix_list(peer) if peer.startswith("pl-") else ec2.Peer.ipv4(peer)


def check_throughput(throughput: str | Size | None, file_system_id: str | None) -> None:
    """
    Check that throughput is chosen for a file system that is made here.

    Raises:
        ValueError: It is not.
    """
    if throughput is not None and file_system_id is not None:
        raise ValueError(
            "file_system_throughput must be left out with file_system_id, got both; the file system has its own"
        )
