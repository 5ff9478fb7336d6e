"""The estimate: candidates, what the stack costs beside their nodes, and what stays."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deeplearning_cli.estimate.node_costs import CandidateCost, reckon_candidates
from deeplearning_cli.estimate.prices import HOURS_A_MONTH, UNITS, PriceList
from deeplearning_cli.estimate.rules import BACKUP, BY_USE, PRICED, Need, is_known, is_retained

_EFS, _SELECTION, _VAULT = "AWS::EFS::FileSystem", "AWS::Backup::BackupSelection", "AWS::Backup::BackupVault"
_TRAFFIC = {
    "nat-gateway": "NAT gateway: traffic by GB",
    "interface-endpoint": "interface endpoints: traffic by GB",
    "kms-key": "KMS: requests by number, and rotations of the key",
}
"""Price -> what costs by use beside it."""
_ELASTIC = "EFS: reads and writes by GB, as the throughput is elastic"


@dataclass(frozen=True)
class StackCost:
    """
    Cost of something beside the nodes.

    Attributes:
        subject: What it is.
        amount: How many units of it.
        unit: What the price is for.
        usd: Price of a unit.
        hourly: USD an hour for all.
        is_retained: True if it stays when the stack is deleted.
    """

    subject: str
    amount: float
    unit: str
    usd: float
    hourly: float
    is_retained: bool

    @property
    def monthly(self) -> float:
        """USD a month."""
        return self.hourly * HOURS_A_MONTH


@dataclass(frozen=True)
class Estimate:
    """
    Estimate of a stack.

    Attributes:
        candidates: Candidates in the order in which they are asked.
        beside: What the stack costs beside the nodes.
        by_use: What costs by use, and is in no total.
        kept_by_use: What of that stays when the stack is deleted.
        unknown: Resources without a rule.
        hours: Hours that the nodes run.
    """

    candidates: tuple[CandidateCost, ...]
    beside: tuple[StackCost, ...]
    by_use: tuple[str, ...]
    kept_by_use: tuple[str, ...]
    unknown: tuple[str, ...]
    hours: float

    @property
    def beside_hourly(self) -> float:
        """USD an hour beside the nodes."""
        return sum(cost.hourly for cost in self.beside)

    def refused_before(self, position: int) -> float:
        """Return the most USD that the candidates before one cost when each is refused once."""
        return sum(candidate.refused for candidate in self.candidates[:position])

    def everything(self, position: int) -> float:
        """Return USD for the hours with a candidate: its nodes, the stack, and the candidates that refused before."""
        hourly = self.candidates[position].hourly + self.beside_hourly
        return hourly * self.hours + self.refused_before(position)

    @property
    def dearest(self) -> float:
        """The most USD that the hours cost with any candidate."""
        return max(self.everything(position) for position in range(len(self.candidates)))


def reckon(templates: Sequence[Mapping[str, Any]], prices: PriceList, *, hours: float, gib: float) -> Estimate:
    """
    Return the estimate of a stack.

    Args:
        templates: Template of the stack, and those of its nested stacks.
        prices: Prices of its region.
        hours: Hours that the nodes run.
        gib: Data on its shared file system, in GiB.

    Raises:
        UnavailableError: A price is missing.
    """
    candidates = reckon_candidates(templates, prices)
    needs = _collect_needs(templates, gib)
    beside = tuple(_price(need, prices) for need in needs)
    prices.require_all()
    resources = [item for template in templates for item in template.get("Resources", {}).items()]
    return Estimate(
        candidates=candidates,
        beside=beside,
        by_use=tuple(sorted({*_list_uses(each for _, each in resources), *_list_traffic(needs, resources)})),
        kept_by_use=tuple(sorted(_list_uses(each for _, each in resources if is_retained(each)))),
        unknown=tuple(sorted(f"{each['Type']} {name}" for name, each in resources if not is_known(each["Type"]))),
        hours=hours,
    )


def list_names(templates: Sequence[Mapping[str, Any]], gib: float) -> set[str]:
    """Return the names of the prices that the estimate of a stack needs."""
    none = PriceList("", {})
    reckon_candidates(templates, none)
    return none.missing | {need.price for need in _collect_needs(templates, gib)}


def _collect_needs(templates: Sequence[Mapping[str, Any]], gib: float) -> list[Need]:
    return _merge([need for template in templates for need in _list_needs(template.get("Resources", {}), gib)])


def _list_needs(resources: Mapping[str, Any], gib: float) -> Iterator[Need]:
    for resource in resources.values():
        yield from PRICED.get(resource["Type"], lambda *_: ())(resource, gib)
    if any(_EFS in _list_backed_up(each, resources) for each in resources.values() if each["Type"] == _SELECTION):
        for vault in (each for each in resources.values() if each["Type"] == _VAULT):
            yield replace(BACKUP, amount=gib, is_retained=is_retained(vault))


def _list_uses(resources: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the descriptions of what costs by use."""
    return {BY_USE[each["Type"]] for each in resources if each["Type"] in BY_USE}


def _list_traffic(needs: Iterable[Need], resources: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield what costs by use beside something that has a price."""
    yield from (_TRAFFIC[need.price] for need in needs if need.price in _TRAFFIC)
    if any(each["Type"] == _EFS and each["Properties"].get("ThroughputMode") == "elastic" for _, each in resources):
        yield _ELASTIC


def _list_backed_up(selection: Mapping[str, Any], resources: Mapping[str, Any]) -> set[str]:
    """Return the types of the stack's resources that a selection of backups names."""
    text = str(selection["Properties"])
    return {str(each["Type"]) for name, each in resources.items() if f"'{name}'" in text}


def _merge(needs: Sequence[Need]) -> list[Need]:
    """Return needs of the same kind as one, in the order of their subjects."""
    merged: dict[tuple[str, str, bool], Need] = {}
    for need in needs:
        key = (need.subject, need.price, need.is_retained)
        merged[key] = replace(need, amount=need.amount + (merged[key].amount if key in merged else 0))
    return [merged[key] for key in sorted(merged) if merged[key].amount]


def _price(need: Need, prices: PriceList) -> StackCost:
    price = prices.find(need.price)
    hourly = need.amount * price.hourly
    return StackCost(need.subject, need.amount, UNITS.get(need.price, "hour"), price.usd, hourly, need.is_retained)
