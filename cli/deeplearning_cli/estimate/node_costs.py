"""Costs of the nodes of each candidate, which launch one at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deeplearning_cli.account.demand import NodeDemand, list_demands
from deeplearning_cli.estimate.prices import PriceList
from deeplearning_contract.names import FIRST_CANDIDATE
from deeplearning_contract.settings import adjuster_variable

LEAVING_SECONDS = 180
"""Most that the adjuster needs to take back what a refused candidate launched."""
_NOTES = {
    "on-demand": "",
    "reserved": "at the On-Demand price, which the reservation costs in use or not",
    "spot": "at the On-Demand price, the most that spot costs; no price of spot is known offline",
}
_BLOCK = "paid when the Capacity Block was bought; in no total"


@dataclass(frozen=True)
class NodeCost:
    """
    Cost of the nodes of a group.

    Attributes:
        role: Role of the nodes.
        instance_type: Instance type.
        count: How many they are.
        instances: USD an hour for the instances.
        extras: USD an hour for their root volumes and public addresses.
        note: What to know about the price. Empty: nothing.
    """

    role: str
    instance_type: str
    count: int
    instances: float
    extras: float
    note: str = ""


@dataclass(frozen=True)
class CandidateCost:
    """
    Cost of the nodes of a candidate.

    Attributes:
        name: Candidate, as its tag has it.
        nodes: Nodes of each group.
        refused: Most USD that it costs when it is refused once.
    """

    name: str
    nodes: tuple[NodeCost, ...]
    refused: float

    @property
    def hourly(self) -> float:
        """USD an hour."""
        return sum(node.instances + node.extras for node in self.nodes)


def reckon_candidates(templates: Sequence[Mapping[str, Any]], prices: PriceList) -> tuple[CandidateCost, ...]:
    """Return the candidates of a stack in the order in which they are asked; none for a stack without nodes."""
    found: dict[str, list[NodeCost]] = {}
    for template in templates:
        resources = template.get("Resources", {})
        for demand in list_demands([template]):
            found.setdefault(demand.candidate, []).append(_reckon_nodes(demand, resources, prices))
    order, patience = _read_search(templates)
    names = [name for name in order if name in found] + [name for name in found if name not in order]
    seconds = patience + LEAVING_SECONDS if len(names) > 1 else 0
    costs = [CandidateCost(name, tuple(found[name]), 0.0) for name in names]
    return tuple(CandidateCost(cost.name, cost.nodes, cost.hourly * seconds / 3600) for cost in costs)


def _reckon_nodes(demand: NodeDemand, resources: Mapping[str, Any], prices: PriceList) -> NodeCost:
    reference = resources[demand.group]["Properties"]["LaunchTemplate"]["LaunchTemplateId"]["Ref"]
    data = resources[reference]["Properties"]["LaunchTemplateData"]
    is_block = data.get("InstanceMarketOptions", {}).get("MarketType") == "capacity-block"
    usd = 0.0 if is_block else prices.find(demand.instance_type).hourly
    note = _BLOCK if is_block else _NOTES[demand.market]
    extras = demand.count * sum(_list_extras(data, prices))
    return NodeCost(demand.role, demand.instance_type, demand.count, demand.count * usd, extras, note)


def _list_extras(data: Mapping[str, Any], prices: PriceList) -> Iterator[float]:
    """Yield USD an hour of each volume and each public address of a node."""
    for mapping in data.get("BlockDeviceMappings", ()):
        volume = mapping["Ebs"]
        yield float(volume["VolumeSize"]) * prices.find(f"ebs-{volume['VolumeType']}").hourly
    if any(card.get("AssociatePublicIpAddress") is True for card in data.get("NetworkInterfaces", ())):
        yield prices.find("public-ipv4").hourly


def _read_search(templates: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
    """Return the adjuster's order of candidates, and its patience with each in seconds."""
    for template in templates:
        for resource in template.get("Resources", {}).values():
            settings = resource.get("Properties", {}).get("Environment", {})
            variables = settings.get("Variables", {}) if isinstance(settings, Mapping) else {}
            if order := variables.get(adjuster_variable("candidates")):
                return str(order).split(","), int(variables[adjuster_variable("patience_seconds")])
    return [FIRST_CANDIDATE], 0
