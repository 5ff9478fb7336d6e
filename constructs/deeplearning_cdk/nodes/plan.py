"""Plan of a cluster's nodes: values that follow from other values, checked before any construct is created."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aws_cdk import Size

from deeplearning_cdk.capacity.candidate import Candidate, name_candidate
from deeplearning_cdk.capacity.purchase import Purchase, check_purchase
from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts, describe_types
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.network.interfaces import describe_hardware
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.network.zone_subnets import PlaceChoice
from deeplearning_cdk.nodes.environment_choice import choose_environment
from deeplearning_cdk.nodes.fallbacks import (
    check_blocks,
    check_fallback_purchase,
    check_type,
    check_zone,
    find_zone_name,
    name_fallback,
)
from deeplearning_cdk.nodes.image_choice import check_volume, choose_image
from deeplearning_cdk.nodes.values import Master, Software, WorkerCapacity, Workers
from deeplearning_cdk.security.node_roles import check_roles
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.lustre import add_lustre_client
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
from deeplearning_cdk.storage.values import Storage
from deeplearning_contract.names import FIRST_CANDIDATE, NodeRole
from deeplearning_contract.setting_parts import HardwareSettings

_WORKERS_VOLUME = "workers.volume_size"
DEFAULT_INSTANCE_TYPE = "p3dn.24xlarge"


@dataclass(frozen=True)
class RolePlan:
    """Plan of the nodes of one role, and the user's value for the rest."""

    facts: InstanceTypeFacts
    purchase: Purchase
    max_capacity: int
    volume_size: Size | int | None
    value: Workers | Master


@dataclass(frozen=True)
class NodePlan:
    """Plan of the nodes of both roles, of the first candidate or of a fallback."""

    roles: Mapping[NodeRole, RolePlan]
    capacity: WorkerCapacity
    image: NodeImage
    environment: JobEnvironment | None
    """Environment of jobs; None for the image's own software."""
    name: str = ""
    """Zone, type and purchase of the workers, in the form of a candidate tag."""
    tag: str = FIRST_CANDIDATE
    """Candidate tag of the groups."""
    place: PlaceChoice = field(default_factory=PlaceChoice)
    """The user's choice of the place of a fallback."""
    fallbacks: tuple["NodePlan", ...] = ()
    """Plans of the fallbacks of the first, in the user's order."""

    @property
    def master(self) -> InstanceTypeFacts:
        """The master's instance type."""
        return self.roles[NodeRole.MASTER].facts

    @property
    def workers(self) -> InstanceTypeFacts:
        """The workers' instance type."""
        return self.roles[NodeRole.WORKER].facts

    @property
    def placed_roles(self) -> tuple[NodeRole, ...]:
        """
        Roles whose nodes can and should be close together, in a placement group that the cluster creates.

        Their types are accelerated and supported by cluster placement groups; a master that does not train is excluded.
        """
        placed = [kind for kind, role in self.roles.items() if _is_placeable(role.facts, role.purchase)]
        return tuple(placed) if NodeRole.WORKER in placed else ()

    @property
    def candidates(self) -> tuple["NodePlan", ...]:
        """Plans of all candidates in the order in which they are asked, this one first."""
        return (self, *self.fallbacks)

    @property
    def made_fallbacks(self) -> list["NodePlan"]:
        """The fallbacks in the order in which their groups are created, which does not change with the user's."""
        return sorted(self.fallbacks, key=lambda fallback: fallback.tag)

    @property
    def block_id(self) -> str:
        """Id of the Capacity Block whose end is announced to the nodes; empty without one."""
        workers, master = self.roles[NodeRole.WORKER].purchase, self.roles[NodeRole.MASTER].purchase
        return workers.block_id or master.block_id

    @property
    def worker_block_id(self) -> str:
        """Id of the Capacity Block for which workers wait beside a master that launches before; empty without one."""
        workers, master = self.roles[NodeRole.WORKER].purchase, self.roles[NodeRole.MASTER].purchase
        return workers.block_id if self.capacity.desired and not master.block_id else ""

    @property
    def has_spot(self) -> bool:
        """True if any node is a spot instance, or may be one."""
        return any(role.purchase.kind == "spot" for each in self.candidates for role in each.roles.values())

    @property
    def has_head_node(self) -> bool:
        """True if the master does not train: it has no accelerators, and the workers have some."""
        return self.master.accelerator is None and self.workers.accelerator is not None

    @property
    def has_gpus(self) -> bool:
        """True if any node has NVIDIA GPUs, whose utilization the agent can read."""
        kinds = [each.master for each in self.candidates]
        kinds += [each.workers for each in self.candidates] if self.capacity.maximum else []
        return any(kind.gpu_count > 0 for kind in kinds)

    @property
    def hardware(self) -> Mapping[str, HardwareSettings]:
        """Hardware of the nodes, by role."""
        return {kind.value: describe_hardware(role.facts) for kind, role in self.roles.items()}


def plan_nodes(workers: Workers, master: Master, network: Network, software: Software, storage: Storage) -> NodePlan:
    """
    Derive instance types, image, environment and purchase options from the user's values.

    Raises:
        ValueError: Two values contradict each other; the message names the prop, the rule and a way out.
    """
    _check_access(workers, master, network, storage)
    first = _plan_candidate(workers, master, network, software, storage)
    name = _name_content(Candidate(), first, network)
    known = {name}
    plans = []
    for index, candidate in enumerate(workers.fallbacks):
        prop = f"workers.fallbacks[{index}]"
        check_type(prop, candidate, first.workers)
        check_zone(prop, candidate, master, network, storage)
        try:
            own_workers, own_network = _apply(candidate, workers, network)
            fallback = _plan_candidate(own_workers, master, own_network, software, storage)
        except ValueError as error:
            raise name_fallback(prop, error) from error
        _check_alike(prop, candidate, fallback, first)
        tag = _name_content(candidate, fallback, network)
        if tag in known:
            raise ValueError(
                f"{prop} must differ from each candidate before it, got {tag.rpartition('-')[0]} again; leave it out, "
                "or name another zone, type or purchase"
            )
        known.add(tag)
        place = PlaceChoice(prop, candidate.availability_zone, candidate.worker_subnet, candidate.master_subnet)
        plans.append(replace(fallback, tag=tag, place=place))
    return replace(first, name=name, fallbacks=tuple(plans))


def _apply(candidate: Candidate, workers: Workers, network: Network) -> tuple[Workers, Network]:
    """Return the values of the first candidate with those of a fallback in their place."""
    changed = {"instance_type": candidate.instance_type, "purchase": candidate.purchase}
    given = {name: value for name, value in changed.items() if value is not None}
    zone = candidate.availability_zone or network.availability_zone
    return (
        replace(workers, fallbacks=(), patience=None, **given),  # type: ignore[arg-type]
        replace(network, availability_zone=zone),
    )


def _check_alike(prop: str, candidate: Candidate, fallback: NodePlan, first: NodePlan) -> None:
    """Check that a fallback has what all nodes share, and a purchase that can be its own."""
    if fallback.image != first.image:
        raise ValueError(
            f"{prop}.instance_type must start from the image of {first.workers.name}, got {fallback.workers.name} for "
            f"{fallback.image.parameter}; pass a software.image for both, or take another type"
        )
    if fallback.environment != first.environment:
        raise ValueError(
            f"{prop}.instance_type must run the environment of {first.workers.name}, got {fallback.workers.name} with "
            "another; pass a software.environment for both, or take another type"
        )
    for name, plan in (("workers.purchase or master.purchase", first), (f"{prop}.purchase", fallback)):
        check_blocks(name, plan.block_id)
    is_elsewhere = candidate.availability_zone is not None or fallback.workers.name != first.workers.name
    purchase = fallback.roles[NodeRole.WORKER].purchase
    check_fallback_purchase(prop, purchase, is_inherited=candidate.purchase is None and is_elsewhere)


def _name_content(candidate: Candidate, plan: NodePlan, network: Network) -> str:
    """Return the candidate tag of what a candidate is; that of the first has it in no group."""
    first = find_zone_name(network)
    zone = candidate.availability_zone or first
    subnets = [candidate.worker_subnet, candidate.master_subnet or candidate.worker_subnet]
    if zone == first and candidate.worker_subnet is None:
        subnets = [network.worker_subnet, candidate.master_subnet or network.master_subnet or network.worker_subnet]
    return name_candidate(zone, plan.workers.name, plan.roles[NodeRole.WORKER].purchase, subnets)


def _plan_candidate(
    workers: Workers, master: Master, network: Network, software: Software, storage: Storage
) -> NodePlan:
    """Derive the plan of one candidate, with its values as those of the cluster."""
    types = describe_types(workers.instance_type, master.instance_type, DEFAULT_INSTANCE_TYPE, efa=network.efa)
    image = choose_image(software.image, *types, isolated=network.isolated)
    environment = choose_environment(
        software.environment,
        software.environment_cache,
        types,
        image.parameter,
        image.interpreter,
        isolated=network.isolated,
    )
    roles = {
        NodeRole.MASTER: RolePlan(
            facts=types[1],
            purchase=check_purchase("master.purchase", master.purchase, network.zone),
            max_capacity=1,
            volume_size=workers.volume_size if master.volume_size is None else master.volume_size,
            value=master,
        ),
        NodeRole.WORKER: RolePlan(
            facts=types[0],
            purchase=check_purchase("workers.purchase", workers.purchase, network.zone),
            max_capacity=workers.capacity.maximum,
            volume_size=workers.volume_size,
            value=workers,
        ),
    }
    for role, planned in roles.items():
        prop = "master.volume_size" if planned.value is master and master.volume_size is not None else _WORKERS_VOLUME
        has_build = role is NodeRole.MASTER and environment is not None and environment.kind == "horovod"
        check_volume(prop, planned.volume_size, image, planned.facts, has_build=has_build)
    return NodePlan(roles, workers.capacity, add_lustre_client(image) if storage.lustre else image, environment)


def _check_access(workers: Workers, master: Master, network: Network, storage: Storage) -> None:
    check_roles(master.role, workers.role)
    if network.vpc is not None:
        return
    if network.isolated and master.ssh_peer is not None:
        raise ValueError(
            "master.ssh_peer must be left out with network.isolated, got both; log in through Session Manager"
        )
    if not (storage.file_system is None or isinstance(storage.file_system, str | SharedFileSystem)):
        raise ValueError(
            "network.vpc must be given with storage.file_system, got none; pass the VPC in which its mount targets are"
        )


def _is_placeable(facts: InstanceTypeFacts, purchase: Purchase) -> bool:
    return facts.is_clusterable and not facts.is_burstable and facts.accelerator is not None and purchase.is_placeable
