"""
Props of `TrainingCluster` about its nodes, grouped as values: workers, master and software.

Each is a frozen dataclass that checks its fields when it is created. A field is written once, with its rule and its
documentation: the app's context reads it under the same name (`-c workers.instance_type=…`), and the reference of the
docs is generated from it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from aws_cdk import Duration, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from deeplearning_cdk.capacity.candidate import MOST_FALLBACKS, Candidate, Patience
from deeplearning_cdk.capacity.purchase import ChosenPurchase
from deeplearning_cdk.catalog.instance_catalog import NodeInstanceType
from deeplearning_cdk.network.addresses import LARGEST_SUBNET_ADDRESSES, is_everyone, is_ipv4_network
from deeplearning_cdk.nodes.image_choice import ChosenImage
from deeplearning_cdk.nodes.user_scripts import Script
from deeplearning_cdk.props.check import Rule, check_fields, names_checked, show_duration
from deeplearning_cdk.props.rules import between, lasting, matching, sized
from deeplearning_cdk.software.environment_cache import EnvironmentCache
from deeplearning_cdk.software.job_environment import JobEnvironment

_DEFAULT_WORKERS = 3
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
"""Number of workers; the largest subnet has that many addresses."""

VolumeSize = Annotated[
    Size | int,
    # EC2 API reference, EbsBlockDevice: gp3 has 1 to 65,536 GiB; older pages of AWS end at 16,384.
    sized(1, 65_536, "pass e.g. Size.gibibytes(300), and not below the image's"),
]
"""Size of a root volume; a number is GiB."""

_NOT_EVERYONE = Rule(must="not be everyone", remedy="name your own network, e.g. 203.0.113.7/32", is_kept=_admits_few)
_NETWORK = Rule(
    must="be an IPv4 network or the id of a prefix list",
    remedy="write e.g. 203.0.113.7/32",
    is_kept=lambda text: is_ipv4_network(text) or _PREFIX_LIST.fullmatch(text) is not None,
)
SshPeer = Annotated[str, _NOT_EVERYONE, _NETWORK] | Annotated[ec2.IPeer, _NOT_EVERYONE]
"""Source from which the master accepts SSH."""

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
"""EC2 key pair of the login user."""


ImageRelease = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "be 1 to 64 letters, digits and ._-", "write e.g. the day, 2026-11-22"
    ),
]
"""Label of the image's release; a change adopts the latest one."""

SetupTimeout = Annotated[Duration, lasting("10 minutes", "12 hours", "the default is 55 minutes")]
"""Time that the stack waits for the cluster; CloudFormation waits no longer than 12 hours."""


WorkerRole = Annotated[
    iam.Role,
    "make it with iam.Role in this app, because the master verifies the reports of workers by the role's unique id, "
    "which an imported role does not have",
]
"""IAM role of the workers."""


class WorkerCapacity(NamedTuple):
    """The workers' capacities with their defaults filled in."""

    minimum: int
    desired: int
    maximum: int


@names_checked
@dataclass(frozen=True, kw_only=True)
class Workers:
    """
    The workers of a cluster.

    Attributes:
        instance_type: Instance type. Default: p3dn.24xlarge.
        min_capacity: Smallest number of workers with which the cluster may form. Default: 1, or 0 without workers.
        desired_capacity: Workers to launch. Default: 3, or the nearest number that minimum and maximum allow.
        max_capacity: Largest number of workers that the group may be scaled to. Default: the desired capacity.
        purchase: Purchase option: on demand, spot, a reservation, or a Capacity Block in `network.availability_zone`.
            Default: on demand.
        fallbacks: Candidates that are asked one after the other when those before them give fewer workers than
            `min_capacity`, or no master. Default: none.
        patience: Time that each candidate has for its launches, with `fallbacks`. Default: 3 minutes.
        volume_size: Size of each root volume; a number is GiB. Default: 150 GiB.
        setup_script: Path of a script, or `ec2.UserData` for Linux, that runs as root on every worker before it joins.
            Default: none.
        role: IAM role, made in this app, to which the workers' permissions are attached. Default: a new one.
    """

    instance_type: NodeInstanceType | None = None
    min_capacity: WorkerCount | None = None
    desired_capacity: WorkerCount | None = None
    max_capacity: WorkerCount | None = None
    purchase: ChosenPurchase | None = None
    fallbacks: Sequence[Candidate] = ()
    patience: Patience | None = None
    volume_size: VolumeSize | None = None
    setup_script: Script | None = None
    role: WorkerRole | None = None

    def __post_init__(self) -> None:
        check_fields(self, "workers.")
        if len(self.fallbacks) > MOST_FALLBACKS:
            raise ValueError(
                f"workers.fallbacks must have at most {MOST_FALLBACKS} candidates, got {len(self.fallbacks)}; leave "
                "the last ones out"
            )
        if self.patience is not None and not self.fallbacks:
            raise ValueError(
                f"workers.patience must be left out without workers.fallbacks, got {show_duration(self.patience)}; "
                "name what is asked next, or leave it out"
            )
        capacity = self.capacity
        for lesser, greater, name, limit in (
            (capacity.minimum, capacity.desired, "min_capacity", "desired_capacity"),
            (capacity.desired, capacity.maximum, "desired_capacity", "max_capacity"),
        ):
            if lesser > greater:
                raise ValueError(
                    f"workers.{name} must not exceed workers.{limit}, got {lesser} > {greater}; "
                    f"lower it or raise workers.{limit}"
                )

    @property
    def capacity(self) -> WorkerCapacity:
        """The three capacities with their defaults filled in."""
        minimum, desired, maximum = self.min_capacity, self.desired_capacity, self.max_capacity
        if desired is None:
            desired = max(minimum or 0, _DEFAULT_WORKERS if maximum is None else min(_DEFAULT_WORKERS, maximum))
        return WorkerCapacity(
            minimum=min(1, desired) if minimum is None else minimum,
            desired=desired,
            maximum=desired if maximum is None else maximum,
        )


@names_checked
@dataclass(frozen=True, kw_only=True)
class Master:
    """
    The master of a cluster.

    Attributes:
        instance_type: Instance type. A master without accelerators, beside workers with accelerators, runs no ranks.
            Default: the workers' type.
        purchase: Purchase option. The stack completes only if the master launches. Default: on demand, whatever the
            workers' option.
        volume_size: Size of the root volume; a number is GiB. Default: the workers' size.
        setup_script: Path of a script, or `ec2.UserData` for Linux, that runs as root before the master joins.
            Default: none.
        run_script: Path of a script, or `ec2.UserData`, that runs as the login user once the cluster has formed; in it,
            `deeplearning exec` runs a command on every node. Default: none.
        ssh_peer: Network, prefix list or peer that may connect to the master by SSH; in a new VPC the master is then in
            the public subnet. Default: none; log in through Session Manager.
        role: IAM role to which the master's permissions are attached. Default: a new one.
    """

    instance_type: NodeInstanceType | None = None
    purchase: ChosenPurchase | None = None
    volume_size: VolumeSize | None = None
    setup_script: Script | None = None
    run_script: Script | None = None
    ssh_peer: SshPeer | None = None
    role: iam.IRole | None = None

    def __post_init__(self) -> None:
        check_fields(self, "master.")

    @property
    def peer(self) -> ec2.IPeer | None:
        """`ssh_peer` as a peer."""
        if not isinstance(self.ssh_peer, str):
            return self.ssh_peer
        return ec2.Peer.prefix_list(self.ssh_peer) if self.ssh_peer.startswith("pl-") else ec2.Peer.ipv4(self.ssh_peer)


@names_checked
@dataclass(frozen=True, kw_only=True)
class Software:
    """
    The software of the nodes and of the jobs.

    Attributes:
        image: Machine image of every node. Default: an image that supports the instance type: the PyTorch Deep Learning
            AMI on Ubuntu, stock Ubuntu with the proprietary driver for P3, or stock Ubuntu for CPU types.
        image_release: Change this string to adopt the image's latest release. Until then, replacements use the release
            that the stack was created with. Default: 1.
        environment: Software environment of jobs, built once per cluster. Default: Horovod, with PyTorch where the
            image has no framework; none for AWS's own accelerators.
        environment_cache: Bucket that stores built environments for other clusters. Default: none; they stay on the
            shared file system.
    """

    image: ChosenImage | None = None
    image_release: ImageRelease = "1"
    environment: JobEnvironment | None = None
    environment_cache: EnvironmentCache | None = None

    def __post_init__(self) -> None:
        check_fields(self, "software.")
