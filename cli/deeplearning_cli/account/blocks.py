"""Offers of Capacity Blocks for the workers: advice, since nothing is bought."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from deeplearning_cli.account.answers import Answers, Refused, ask, read_pages
from deeplearning_cli.account.demand import NodeDemand
from deeplearning_cli.account.finding import Finding
from deeplearning_contract.names import NodeRole

_HOURS = 24
"""Shortest duration of a block (EC2 API, `DescribeCapacityBlockOfferings`)."""
_RIGHT = "ec2:DescribeCapacityBlockOfferings"


@dataclass(frozen=True)
class BlockOffer:
    """A Capacity Block that EC2 sells; the fee is due in advance."""

    id: str
    zone: str
    start: datetime
    end: datetime
    fee: str
    currency: str


def list_blocks(demands: Sequence[NodeDemand], answers: Answers) -> dict[str, int]:
    """Return instance type -> most workers of a candidate, for types that EC2 sells in blocks and nothing reserves."""
    wanted: dict[str, int] = {}
    for demand in demands:
        is_sold = demand.instance_type in answers.sold_in_blocks and demand.market != "reserved"
        if is_sold and demand.role == NodeRole.WORKER:
            wanted[demand.instance_type] = max(wanted.get(demand.instance_type, 0), demand.count)
    return wanted


def read_offers(ec2: Any, wanted: Mapping[str, int]) -> dict[str, BlockOffer | Refused | None]:
    """Return instance type -> soonest offer; None where there is none."""
    return {name: ask(partial(_read_offer, ec2, name, count)) for name, count in wanted.items()}


def _read_offer(ec2: Any, instance_type: str, count: int) -> BlockOffer | None:
    parameters = {"InstanceType": instance_type, "InstanceCount": count, "CapacityDurationHours": _HOURS}
    entries = read_pages(ec2, "describe_capacity_block_offerings", "CapacityBlockOfferings", **parameters)
    offers = [
        BlockOffer(
            each["CapacityBlockOfferingId"],
            each["AvailabilityZone"],
            each["StartDate"],
            each["EndDate"],
            each["UpfrontFee"],
            each["CurrencyCode"],
        )
        for each in entries
    ]
    return min(offers, key=lambda offer: offer.start, default=None)


def judge_offers(wanted: Mapping[str, int], offers: Mapping[str, BlockOffer | Refused | None]) -> Iterator[Finding]:
    """Describe the soonest offer for each instance type, and how to buy it."""
    for name, count in wanted.items():
        yield replace(_judge(f"Capacity Block of {count} {name}", offers[name]), is_advice=True)


def _judge(subject: str, offer: BlockOffer | Refused | None) -> Finding:
    if isinstance(offer, Refused):
        return Finding.refused(subject, offer, _RIGHT)
    if offer is None:
        return Finding(subject, "ok", f"EC2 offers none for {_HOURS} h now")
    time = f"{offer.start:%Y-%m-%dT%H:%MZ} to {offer.end:%Y-%m-%dT%H:%MZ}"
    detail = f"the soonest for {_HOURS} h is in {offer.zone}, {time}, for {offer.fee} {offer.currency} in advance"
    buy = f"aws ec2 purchase-capacity-block --capacity-block-offering-id {offer.id} --instance-platform Linux/UNIX"
    return Finding(subject, "ok", detail, f"to buy it: {buy}")
