"""Rules for the fallbacks of a cluster: what a candidate may change, while image, environment and storage stay."""

import re
from dataclasses import fields

from deeplearning_cdk.capacity.candidate import Candidate
from deeplearning_cdk.capacity.purchase import Purchase
from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts, describe_instance_type
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.values import Master
from deeplearning_cdk.props.check import is_dummy_value, is_token
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
from deeplearning_cdk.storage.values import Storage

_OWN_PROPS = re.compile(r"\bworkers(\.instance_type|\.purchase)\b|\bnetwork(\.availability_zone)\b")


def find_zone_name(network: Network) -> str:
    """Return the zone of the first candidate; empty where its name is not known at synth."""
    zone = network.zone
    return "" if zone is None or is_token(zone) or is_dummy_value(zone) else zone


def check_zone(prop: str, candidate: Candidate, master: Master, network: Network, storage: Storage) -> None:
    """
    Check the zone of a fallback: what is in one zone cannot follow the nodes to another.

    Raises:
        ValueError: The first one's zone is not named, or it is in another region or lacks what the nodes need.
    """
    zone, first = candidate.availability_zone, find_zone_name(network)
    if zone is None:
        return
    if network.vpc is None and (candidate.worker_subnet or candidate.master_subnet):
        raise ValueError(f"network.vpc must be given with the subnets of {prop}, got none; pass the subnets' VPC")
    if not first and not is_dummy_value(network.zone):
        raise ValueError(
            f"network.availability_zone must be named with the zone of {prop}, got none for {zone}; write e.g. "
            f"{zone[:-1]}a"
        )
    if first and zone[:-1] != first[:-1]:
        raise ValueError(
            f"{prop}.availability_zone must be a zone beside {first}, got {zone}; write e.g. {first[:-1]}b"
        )
    if zone != first:
        _check_further_zone(prop, zone, master, network, storage)


def _check_further_zone(prop: str, zone: str, master: Master, network: Network, storage: Storage) -> None:
    if storage.lustre is not None:
        raise ValueError(
            f"{prop}.availability_zone must be that of network with storage.lustre, got {zone}; FSx for "
            "Lustre is in one zone: name another type or purchase, or leave storage.lustre out"
        )
    if isinstance(storage.file_system, SharedFileSystem):
        raise ValueError(  # noqa: TRY004 - the zone is wrong
            f"{prop}.availability_zone must be that of storage.file_system, got {zone}; the other cluster's file "
            "system has a mount target in one zone: name another type or purchase, or pass the file system's id"
        )
    if master.ssh_peer is not None and network.vpc is None:
        raise ValueError(
            f"master.ssh_peer must be left out with the zone of {prop} in a new VPC, got both; its public subnet is in "
            "one zone: log in through Session Manager, or pass network.vpc with a public subnet in each zone"
        )
    if master.purchase is not None and master.purchase.reservation_id:
        raise ValueError(
            f"master.purchase must be without a reservation with the zone of {prop}, got "
            f"{master.purchase.reservation_id}; a reservation is in one zone: pass another purchase"
        )


def check_fallback_purchase(prop: str, purchase: Purchase, *, is_inherited: bool) -> None:
    """
    Check the purchase option of a fallback.

    Args:
        prop: The fallback.
        purchase: Its purchase option.
        is_inherited: True if it is that of `workers`, for another zone or type.

    Raises:
        ValueError: It is known at deployment only, or a reservation for another zone or type.
    """
    if any(is_token(getattr(purchase, each.name)) for each in fields(purchase)):
        raise ValueError(f"{prop}.purchase must be known at synth, got a token; pass the value itself")
    if is_inherited and purchase.reservation_id:
        raise ValueError(
            f"{prop}.purchase must be given beside workers.purchase with a reservation, got none; "
            f"{purchase.reservation_id} is for one zone and type: pass e.g. Purchase.on_demand()"
        )


def check_blocks(prop: str, block_id: str) -> None:
    """
    Refuse a Capacity Block in a cluster with fallbacks: its end would end nodes that are not in it.

    Raises:
        ValueError: A candidate has one.
    """
    if block_id:
        raise ValueError(
            f"{prop} must be without a Capacity Block in a cluster with workers.fallbacks, got {block_id}; its end "
            "stops the whole cluster, in whichever capacity it runs: leave workers.fallbacks out"
        )


def check_type(prop: str, candidate: Candidate, first: InstanceTypeFacts) -> None:
    """
    Check the type of a fallback.

    Raises:
        ValueError: It is not in the catalogue, or has another architecture.
    """
    facts = describe_instance_type(f"{prop}.instance_type", candidate.instance_type, first)
    if facts.architecture != first.architecture:
        raise ValueError(
            f"{prop}.instance_type must have the architecture of workers.instance_type, got {facts.name} "
            f"({facts.architecture}) with {first.name} ({first.architecture}); take another type, since all nodes "
            "start from one image"
        )


def name_fallback(prop: str, error: ValueError) -> ValueError:
    """Return the error of a plan with the props of the fallback in place of the first candidate's."""
    return ValueError(_OWN_PROPS.sub(lambda found: prop + (found[1] or found[2]), str(error)))
