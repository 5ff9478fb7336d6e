"""Puts the parts of a cluster together, in the order in which they need each other."""

from typing import TYPE_CHECKING

from aws_cdk import CfnWaitCondition
from aws_cdk import aws_logs as logs
from constructs import Construct

from deeplearning_cdk.capacity.adjuster import CapacityAdjuster
from deeplearning_cdk.capacity.request import RequestedCapacity
from deeplearning_cdk.cluster_access import ClusterAccess
from deeplearning_cdk.cluster_plan import ClusterPlan
from deeplearning_cdk.cluster_warnings import warn_about
from deeplearning_cdk.coordination import Coordination, name_cluster
from deeplearning_cdk.images.pin import pin_image
from deeplearning_cdk.network.cluster_network import ClusterNetwork, Place
from deeplearning_cdk.network.fit import check_network
from deeplearning_cdk.nodes.cluster_nodes import ClusterNodes
from deeplearning_cdk.operations.cost_tags import tag_costs
from deeplearning_cdk.operations.log_groups import make_log_group
from deeplearning_cdk.operations.monitoring import ClusterMonitoring
from deeplearning_cdk.security.encryption import ClusterEncryption
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
from deeplearning_contract.names import NodeRole

if TYPE_CHECKING:
    from constructs import IDependable


class ClusterAssembly(ClusterAccess):
    """
    The making of `TrainingCluster` from its plan.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        plan: The user's props, checked.
        place: Where the user wants the nodes.
        isolated: The nodes have no route to the Internet.
    """

    encryption: ClusterEncryption
    file_system: SharedFileSystem
    coordination: Coordination
    adjuster: CapacityAdjuster
    node_log: logs.LogGroup
    monitoring: ClusterMonitoring
    formation: CfnWaitCondition
    _storage: ClusterStorage

    def __init__(self, scope: Construct, construct_id: str, plan: ClusterPlan, place: Place, *, isolated: bool) -> None:
        super().__init__(scope, construct_id)
        self._plan = plan
        self.cluster_name = tag_costs(self, name_cluster(self))
        has_spot = any(plan.purchase_of(role).kind == "spot" for role in NodeRole)
        self.encryption = ClusterEncryption(
            self, "Encryption", key=plan.encryption_key, is_kept=plan.keeps_data, has_spot=has_spot
        )
        self.network = self._make_network(place, isolated=isolated)
        warn_about(self, plan, isolated=isolated)
        self._storage = ClusterStorage(self, plan.storage, self.network, self.encryption.key)
        self.file_system = self._storage.file_system
        self.coordination = Coordination(self, "Coordination", encryption_key=self.encryption.key)
        self.node_log = make_log_group(self, "NodeLog", key=self.encryption.log_key)
        self.adjuster = self._make_adjuster()
        self._nodes = self._make_nodes()
        self.node.default_child = self.workers.group
        self.monitoring = self._make_monitoring()
        self._order_creation()

    def _make_adjuster(self) -> CapacityAdjuster:
        return CapacityAdjuster(
            self,
            "CapacityAdjuster",
            cluster=self.cluster_name,
            coordination=self.coordination,
            encryption=self.encryption,
            worker_min_capacity=self._plan.capacity.minimum,
            capacity_reservation_id=self._plan.block_id,
            spending=self._plan.spending,
        )

    def _make_nodes(self) -> ClusterNodes:
        return ClusterNodes(
            self,
            "Nodes",
            plan=self._plan,
            cluster=self.cluster_name,
            network=self.network,
            storage=self._storage,
            coordination=self.coordination,
            encryption_key=self.encryption.key,
            log_group=self.node_log,
            image_id=pin_image(self, self._plan.image, self._plan.image_release, self.coordination, self.encryption),
        )

    def _make_monitoring(self) -> ClusterMonitoring:
        return ClusterMonitoring(
            self,
            "Monitoring",
            cluster=self.cluster_name,
            plan=self._plan,
            coordination=self.coordination,
            adjuster=self.adjuster,
            node_log=self.node_log,
            file_system=self.file_system,
            encryption_key=self.encryption.key,
        )

    def _make_network(self, place: Place, *, isolated: bool) -> ClusterNetwork:
        network = ClusterNetwork(
            self,
            "Network",
            vpc=place.vpc,
            vpc_cidr=place.vpc_cidr,
            availability_zone=place.availability_zone,
            worker_subnet=place.worker_subnet,
            master_subnet=place.master_subnet,
            public_master=self._plan.ssh_peer is not None,
            isolated=isolated,
            log_key=self.encryption.log_key,
        )
        most_workers = self._plan.capacity.maximum
        check_network(network, master=self._plan.master, most_workers=most_workers, isolated=isolated)
        return network

    def _order_creation(self) -> None:
        """Let nodes, and the clock of the stack's wait, start when all is there that nodes need, or that can fail."""
        needs: list[IDependable] = [
            self.network.connectivity,
            *self._storage.readiness,
            self.coordination.readiness,
            self.adjuster,
            self._nodes.master_security_group,
            *self._nodes.rights,
            *self._storage.back_up(self.coordination.state_table),
        ]
        self.master.launch_after(*needs)
        # One after the other: in a fresh account two groups at once race for Auto Scaling's service-linked role.
        self.workers.launch_after(*needs, self.master.group)
        request = RequestedCapacity(
            self,
            "RequestedCapacity",
            adjuster=self.adjuster,
            worker_desired_capacity=self._plan.capacity.desired,
        )
        request.ask_after(*needs, self.master.group, self.workers.group, self.network, self.monitoring)
        self.formation = self.coordination.wait_for_formation(self._plan.setup_timeout, *needs)
