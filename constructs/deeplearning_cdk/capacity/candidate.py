"""Candidates for capacity: zones, types and purchases that are asked one after the other until one has capacity."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.capacity.purchase import ChosenPurchase, Purchase
from deeplearning_cdk.catalog.instance_catalog import NodeInstanceType
from deeplearning_cdk.props.check import Rule, check_fields, is_token, names_checked, show_duration
from deeplearning_cdk.props.regions import may_be_zone
from deeplearning_cdk.props.rules import lasting, matching
from deeplearning_contract.names import FIRST_CANDIDATE

MOST_FALLBACKS = 7
DEFAULT_PATIENCE = Duration.minutes(3)
FORMING_MINUTES = 15
"""Minutes of the stack's time that are left for the nodes of the last candidate to form the cluster."""
_LEAVING_MINUTES = 2
"""Minutes that the instances of a refused candidate take to go, before the next one is asked."""

FallbackZone = Annotated[
    str,
    matching(r"[a-z][a-z0-9-]{1,63}", "be the name of an availability zone", "write e.g. us-east-1b"),
    Rule(
        must="begin with the name of an AWS region",
        remedy="write e.g. us-east-1b",
        is_kept=may_be_zone,
    ),
]
"""Zone of a fallback, which its tag names, so that it is no token."""

Patience = Annotated[Duration, lasting("60 seconds", "2 hours", "the default is 3 minutes")]
"""Time that a candidate has for its launches."""


@names_checked
@dataclass(frozen=True, kw_only=True)
class Candidate:
    """
    A zone, an instance type and a purchase option that may have capacity when those before have none.

    Attributes:
        availability_zone: Zone of all nodes. Default: that of `network`.
        instance_type: Instance type of the workers, and of the master where `master.instance_type` is left out.
            Default: that of `workers`.
        purchase: Purchase option of the workers. Default: that of `workers`.
        worker_subnet: Subnet of the workers in `network.vpc`, in `availability_zone`. Default: the zone's first
            private one, or in a new VPC a subnet that the cluster creates.
        master_subnet: Subnet of the master in `network.vpc`, in `availability_zone`. Default: the workers' subnet, or
            with `master.ssh_peer` the zone's first public one.
    """

    availability_zone: FallbackZone | None = None
    instance_type: NodeInstanceType | None = None
    purchase: ChosenPurchase | None = None
    worker_subnet: ec2.ISubnet | None = None
    master_subnet: ec2.ISubnet | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.availability_zone is None and (self.worker_subnet or self.master_subnet):
            raise ValueError(
                "availability_zone must be given with worker_subnet or master_subnet, got none; name the subnets' zone"
            )


@dataclass(frozen=True, kw_only=True)
class CandidateSearch:
    """
    Search for a candidate with capacity.

    Attributes:
        order: Candidate tags in the order in which they are asked, the first included.
        first: Name of what the first is; its tag names nothing.
        patience_seconds: Time that each has for its launches.
        search_seconds: Time after which no further one is asked.
    """

    order: tuple[str, ...]
    first: str
    patience_seconds: int
    search_seconds: int


def plan_search(
    order: Sequence[str], first: str, patience: Duration | None, timeout: Duration
) -> CandidateSearch | None:
    """
    Return the search over candidates; None for the first alone.

    Args:
        order: Candidate tags, the first included.
        first: Name of what the first is.
        patience: The user's `workers.patience`.
        timeout: Time that the stack waits for the cluster.

    Raises:
        ValueError: The time does not suffice to ask each of them, and then to form the cluster.
    """
    if list(order) == [FIRST_CANDIDATE]:
        return None
    patience_seconds = int((patience or DEFAULT_PATIENCE).to_seconds())
    search_seconds = int(timeout.to_seconds()) - FORMING_MINUTES * 60
    needed = len(order) * (patience_seconds + _LEAVING_MINUTES * 60)
    if search_seconds < needed:
        least = -(-needed // 60) + FORMING_MINUTES
        raise ValueError(
            f"setup_timeout must leave {FORMING_MINUTES} minutes to form the cluster after {len(order)} candidates of "
            f"{show_duration(patience or DEFAULT_PATIENCE)} and {_LEAVING_MINUTES} minutes each, got "
            f"{show_duration(timeout)}; pass at least {least} minutes, a shorter workers.patience or fewer "
            "workers.fallbacks"
        )
    return CandidateSearch(
        order=tuple(order), first=first, patience_seconds=patience_seconds, search_seconds=search_seconds
    )


def name_candidate(
    zone: str, instance_type: str, purchase: Purchase, subnets: Sequence[ec2.ISubnet | None] = ()
) -> str:
    """
    Return the candidate tag of what a candidate is: readable parts, and a digest of all of it.

    Groups keep their tags and ids in whichever order they are asked. `zone` is empty where it is not known.
    """
    content = [zone, instance_type, asdict(purchase), [_name_subnet(subnet) for subnet in subnets]]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:4]
    return "-".join(filter(None, (zone, instance_type, purchase.kind, digest)))


def _name_subnet(subnet: ec2.ISubnet | None) -> str:
    # The text of a token may be another in each synthesis.
    return "" if subnet is None else subnet.node.path if is_token(subnet.subnet_id) else subnet.subnet_id
