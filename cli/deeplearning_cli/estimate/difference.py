"""Difference between the estimates of two stacks: of each candidate's total, and what makes it."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deeplearning_cli.estimate.node_costs import CandidateCost
from deeplearning_cli.estimate.reckoning import Estimate
from deeplearning_cli.estimate.rendering import PriceAge, to_document

_NONE = "none"
Amounts = Mapping[str, tuple[str, float]]
"""Subject -> its amount in words, and USD for the hours."""


@dataclass(frozen=True)
class Share:
    """
    Share of a difference.

    Attributes:
        subject: What costs more or less.
        first: Its amount in the first stack, in words. Empty: the subject has none.
        second: Its amount in the second stack, in words.
        usd: USD that it costs more in the second stack.
    """

    subject: str
    first: str
    second: str
    usd: float


@dataclass(frozen=True)
class CandidateDifference:
    """
    Difference of the total of a candidate, with everything.

    Attributes:
        candidate: Its name.
        first: USD with the first stack. None: it has no such candidate.
        second: USD with the second stack. None: it has no such candidate.
        shares: What makes the difference; empty for a candidate of one stack alone.
    """

    candidate: str
    first: float | None
    second: float | None
    shares: tuple[Share, ...]

    @property
    def usd(self) -> float | None:
        """USD that it costs more in the second stack; None for a candidate of one stack alone."""
        return None if self.first is None or self.second is None else self.second - self.first


def compare(first: Estimate, second: Estimate) -> tuple[CandidateDifference, ...]:
    """Return the difference of each candidate of two stacks; candidates of the same name are the same."""
    totals = [
        {each.name: found.everything(position) for position, each in enumerate(found.candidates)}
        for found in (first, second)
    ]
    return tuple(
        CandidateDifference(
            name,
            totals[0].get(name),
            totals[1].get(name),
            tuple(_list_shares(name, first, second)) if all(name in each for each in totals) else (),
        )
        for name in dict.fromkeys([*totals[0], *totals[1]])
    )


def compare_stacks(first: Estimate, second: Estimate) -> tuple[Share, ...]:
    """Return what costs more or less beside the nodes, for the hours."""
    return tuple(_compare_amounts(_count_beside(first), _count_beside(second)))


def render_difference(first: tuple[Estimate, PriceAge], second: tuple[Estimate, PriceAge]) -> list[str]:
    """Return the difference of two estimates as lines."""
    (one, first_age), (other, second_age) = first, second
    ages = [first_age.describe(), second_age.describe()]
    lines = ages[:1] if ages[0] == ages[1] else [f"first: {ages[0]}", f"second: {ages[1]}"]
    if first_age.allows_totals and second_age.allows_totals:
        lines += [*_list_differences(one, other), *_list_rests(one, other)]
    else:
        lines += [*_list_ratios(one, other)]
    lines += [f"only in the first, in no total: {text}" for text in one.by_use if text not in other.by_use]
    lines += [f"only in the second, in no total: {text}" for text in other.by_use if text not in one.by_use]
    return [*lines, *(f"not reckoned, no rule: {text}" for text in sorted({*one.unknown, *other.unknown}))]


def describe_difference(first: tuple[Estimate, PriceAge], second: tuple[Estimate, PriceAge]) -> dict[str, Any]:
    """Return the difference of two estimates as a JSON object; without USD where a price is too old for totals."""
    document: dict[str, Any] = {"first": to_document(*first), "second": to_document(*second)}
    if first[1].allows_totals and second[1].allows_totals:
        document["candidates"] = [
            {
                "candidate": each.candidate,
                "usd_more": None if each.usd is None else round(each.usd, 2),
                "shares": [_describe_share(share) for share in each.shares],
            }
            for each in compare(first[0], second[0])
        ]
        document["stack"] = [_describe_share(share) for share in compare_stacks(first[0], second[0])]
    return document


def _list_shares(name: str, first: Estimate, second: Estimate) -> Iterator[Share]:
    yield from _compare_amounts(_count_candidate(name, first), _count_candidate(name, second))


def _compare_amounts(first: Amounts, second: Amounts) -> Iterator[Share]:
    for subject in dict.fromkeys([*first, *second]):
        (before, less), (after, more) = (each.get(subject, (_NONE, 0.0)) for each in (first, second))
        if before != after or round(more - less, 6):
            yield Share(subject, before, after, more - less)


def _count_candidate(name: str, found: Estimate) -> Amounts:
    """Return what the total of a candidate consists of."""
    position = next(position for position, each in enumerate(found.candidates) if each.name == name)
    candidate = found.candidates[position]
    return {
        **_count_nodes(candidate, found.hours),
        "root volumes and public addresses": ("", found.hours * sum(node.extras for node in candidate.nodes)),
        "candidates before it, each refused once": ("", found.refused_before(position)),
        "beside the nodes": ("", found.hours * found.beside_hourly),
    }


def _count_nodes(candidate: CandidateCost, hours: float) -> Amounts:
    amounts: dict[str, tuple[str, float]] = {}
    for node in candidate.nodes:
        text = f"{node.count} {node.instance_type}" + (f" ({node.note})" if node.note else "")
        before, usd = amounts.get(node.role or "group", ("", 0.0))
        amounts[node.role or "group"] = (", ".join(filter(None, (before, text))), usd + node.instances * hours)
    return amounts


def _count_beside(found: Estimate) -> Amounts:
    amounts: dict[str, tuple[str, float]] = {}
    for cost in found.beside:
        text = f"{cost.amount:g} at USD {cost.usd:g} per {cost.unit}"
        before, usd = amounts.get(cost.subject, ("", 0.0))
        amounts[cost.subject] = (", ".join(filter(None, (before, text))), usd + cost.hourly * found.hours)
    return amounts


def _list_differences(first: Estimate, second: Estimate) -> Iterator[str]:
    hours = f"{second.hours:g} h"
    for each in compare(first, second):
        head = f"everything with candidate {each.candidate}"
        if each.second is None:
            yield f"{head}, only in the first: USD {each.first:,.2f} for {hours}"
        elif each.first is None:
            yield f"{head}, only in the second: USD {each.second:,.2f} for {hours}"
        else:
            yield f"{head}: {_describe_change(each.first, each.second)} for {hours}"
        yield from (_render_share(share) for share in each.shares)
    beside = [found.beside_hourly * found.hours for found in (first, second)]
    yield f"beside the nodes: {_describe_change(*beside)} for {hours}"
    yield from (_render_share(share) for share in compare_stacks(first, second))


def _list_rests(first: Estimate, second: Estimate) -> Iterator[str]:
    for when, is_counted in (("the end of the cluster", False), ("the deletion of the stack", True)):
        sums = [
            sum(cost.monthly for cost in found.beside if cost.is_retained or not is_counted)
            for found in (first, second)
        ]
        yield f"after {when}: {_describe_change(*sums)} a month"


def _list_ratios(first: Estimate, second: Estimate) -> Iterator[str]:
    for each in compare(first, second):
        if each.first and each.second is not None:
            yield f"everything with candidate {each.candidate}: {each.second / each.first:.2f} times the first"


def _describe_change(first: float, second: float) -> str:
    return f"USD {second - first:+,.2f}, from USD {first:,.2f} to USD {second:,.2f}"


def _render_share(share: Share) -> str:
    change = f", {share.first} -> {share.second}" if share.first != share.second else ""
    return f"  {share.subject}: USD {share.usd:+,.2f}{change}"


def _describe_share(share: Share) -> dict[str, Any]:
    return asdict(share) | {"usd": round(share.usd, 4)}
