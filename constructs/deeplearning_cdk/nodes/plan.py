"""Plan of a cluster's nodes: values that follow from other values, checked before any construct is created."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Size

from deeplearning_cdk.capacity.purchase import Purchase, check_purchase
from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts, describe_types
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.network.interfaces import describe_hardware
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.environment_choice import choose_environment
from deeplearning_cdk.nodes.image_choice import check_volume, choose_image
from deeplearning_cdk.nodes.values import Master, Software, WorkerCapacity, Workers
from deeplearning_cdk.security.node_roles import check_roles
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.lustre import add_lustre_client
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
from deeplearning_cdk.storage.values import Storage
from deeplearning_contract.names import NodeRole
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
    """Plan of the nodes of both roles."""

    roles: Mapping[NodeRole, RolePlan]
    capacity: WorkerCapacity
    image: NodeImage
    environment: JobEnvironment | None
    """Environment of jobs; None for the image's own software."""

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
    def block_id(self) -> str:
        """Id of the Capacity Block whose end is announced to the nodes; empty without one."""
        workers, master = self.roles[NodeRole.WORKER].purchase, self.roles[NodeRole.MASTER].purchase
        return workers.block_id or master.block_id

    @property
    def has_spot(self) -> bool:
        """True if any node is a spot instance."""
        return any(role.purchase.kind == "spot" for role in self.roles.values())

    @property
    def has_head_node(self) -> bool:
        """True if the master does not train: it has no accelerators, and the workers have some."""
        return self.master.accelerator is None and self.workers.accelerator is not None

    @property
    def has_gpus(self) -> bool:
        """True if any node has NVIDIA GPUs, whose utilization the agent can read."""
        kinds = (self.master, self.workers) if self.capacity.maximum else (self.master,)
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
