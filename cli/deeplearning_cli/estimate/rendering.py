"""An estimate as lines, and as JSON."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deeplearning_cli.estimate.node_costs import CandidateCost, NodeCost
from deeplearning_cli.estimate.prices import PriceList
from deeplearning_cli.estimate.reckoning import Estimate, StackCost

CHECK_DAYS = 90
"""Age in days over which the prices are to be checked."""
USELESS_DAYS = 365
"""Age in days over which only their ratios are shown."""
_TODAY = "read today's with --live, or give them with --price NAME=USD"


@dataclass(frozen=True)
class PriceAge:
    """
    Age of the prices of an estimate.

    Attributes:
        region: Their region.
        oldest: Date of the oldest one; None where the user gave them all.
        days: How old it is, in days.
    """

    region: str
    oldest: dt.date | None
    days: int

    @classmethod
    def find(cls, prices: PriceList, today: dt.date) -> "PriceAge":
        """Return the age of the prices that were used."""
        oldest = prices.find_oldest()
        return cls(prices.region, oldest, (today - oldest).days if oldest else 0)

    @property
    def allows_totals(self) -> bool:
        """True if totals are shown, and not only ratios."""
        return self.days <= USELESS_DAYS

    def describe(self) -> str:
        """Return the first line of an estimate."""
        if self.oldest is None:
            return f"prices as given, {self.region}"
        text = f"prices of {self.oldest} and later, {self.region}"
        if not self.allows_totals:
            return f"{text}: over {USELESS_DAYS} days old, so only ratios follow; {_TODAY}"
        if self.days > CHECK_DAYS:
            return f"{text}: over {CHECK_DAYS} days old; {_TODAY}"
        return text


def render_lines(estimate: Estimate, age: PriceAge) -> list[str]:
    """Return an estimate as lines."""
    body = _list_totals(estimate) if age.allows_totals else _list_ratios(estimate)
    return [age.describe(), *body, *_list_notes(estimate)]


def to_document(estimate: Estimate, age: PriceAge) -> dict[str, Any]:
    """Return an estimate as a JSON object; without totals where the prices are too old for them."""
    first = estimate.candidates[0].hourly
    document: dict[str, Any] = {
        "prices": {"region": age.region, "oldest": age.oldest.isoformat() if age.oldest else None},
        "hours": estimate.hours,
        "candidates": [
            {"candidate": each.name, "nodes": [_describe_nodes(node) for node in each.nodes]}
            | ({"ratio": round(each.hourly / first, 4)} if first else {})
            | (_count_candidate(estimate, position) if age.allows_totals else {})
            for position, each in enumerate(estimate.candidates)
        ],
        "by_use": list(estimate.by_use),
        "not_reckoned": list(estimate.unknown),
    }
    if age.allows_totals:
        document["stack"] = [_count_stack(cost) for cost in estimate.beside]
    return document


def _count_candidate(estimate: Estimate, position: int) -> dict[str, Any]:
    candidate = estimate.candidates[position]
    return {
        "usd_an_hour": round(candidate.hourly, 4),
        "usd": round(candidate.hourly * estimate.hours, 2),
        "usd_refused_at_most": round(candidate.refused, 2),
        "usd_everything": round(estimate.everything(position), 2),
    }


def _count_stack(cost: StackCost) -> Mapping[str, Any]:
    return {
        "subject": cost.subject,
        "amount": round(cost.amount, 4),
        "usd": cost.usd,
        "unit": cost.unit,
        "usd_an_hour": round(cost.hourly, 6),
        "usd_a_month": round(cost.monthly, 2),
        "stays_after_deletion": cost.is_retained,
    }


def _list_totals(estimate: Estimate) -> Iterator[str]:
    hours = f"{estimate.hours:g} h"
    for each in estimate.candidates:
        usd = each.hourly * estimate.hours
        yield f"candidate {each.name}: USD {each.hourly:,.2f} an hour, USD {usd:,.2f} for {hours}"
        yield from _list_nodes(each)
        yield f"  root volumes and public addresses: USD {sum(node.extras for node in each.nodes):,.4f} an hour"
        if each.refused:
            yield f"  refused once: at most USD {each.refused:,.2f}"
    yield f"beside the nodes: USD {estimate.beside_hourly * estimate.hours:,.2f} for {hours}"
    for cost in estimate.beside:
        usd = cost.hourly * estimate.hours
        yield f"  {cost.subject}: USD {usd:,.2f}, {cost.amount:g} at USD {cost.usd:g} per {cost.unit}"
    for position, each in enumerate(estimate.candidates):
        refused = ", each candidate before it refused once" if estimate.refused_before(position) else ""
        yield f"everything with candidate {each.name}{refused}: USD {estimate.everything(position):,.2f} for {hours}"
    kept = [cost for cost in estimate.beside if cost.is_retained]
    yield _describe_rest("after the end of the cluster", estimate.beside)
    yield _describe_rest("after the deletion of the stack", kept)
    yield from (f"  stays: {text}" for text in estimate.kept_by_use)


def _describe_rest(when: str, costs: Sequence[StackCost]) -> str:
    listing = ", ".join(cost.subject for cost in costs) or "nothing that has a price"
    return f"{when}: USD {sum(cost.monthly for cost in costs):,.2f} a month: {listing}"


def _list_ratios(estimate: Estimate) -> Iterator[str]:
    first = estimate.candidates[0]
    for each in estimate.candidates:
        ratio = f": {each.hourly / first.hourly:.2f} times candidate {first.name}" if first.hourly else ""
        yield f"candidate {each.name}{ratio}"
        yield from _list_nodes(each)


def _list_nodes(candidate: CandidateCost) -> Iterator[str]:
    for node in candidate.nodes:
        yield f"  {node.count} {node.instance_type}, {node.role or 'group'}" + (f": {node.note}" if node.note else "")


def _describe_nodes(node: NodeCost) -> Mapping[str, Any]:
    return {"role": node.role, "instance_type": node.instance_type, "count": node.count, "note": node.note}


def _list_notes(estimate: Estimate) -> Iterator[str]:
    yield "in no total: taxes, discounts, free tiers, traffic between zones and to the internet"
    if len(estimate.candidates) > 1:
        yield "  search: a further round costs what the refused candidates cost again"
    yield from (f"  {text}" for text in estimate.by_use)
    yield from (f"not reckoned, no rule: {text}" for text in estimate.unknown)
