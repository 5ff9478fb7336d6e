"""The nodes of a cluster: roles, programs, launch templates and groups of the master and the workers."""

from typing import cast

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct, IDependable

from deeplearning_cdk.cluster_plan import ClusterPlan
from deeplearning_cdk.coordination import Coordination
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.nodes.node_group import NodeGroup
from deeplearning_cdk.nodes.programs import NodePrograms
from deeplearning_cdk.nodes.user_data import NodeUserData
from deeplearning_cdk.security.node_permissions import (
    log_statement,
    master_statements,
    session_statements,
    worker_statements,
)
from deeplearning_cdk.security.node_roles import NodeIdentity, NodesPrincipal, make_node_role
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import JobNeeds


class ClusterNodes(Construct):
    """
    The master and the workers of a cluster.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        plan: What was chosen for the nodes.
        cluster: The cluster's name.
        network: Where they live.
        storage: What they mount.
        coordination: What they meet at.
        encryption_key: Encrypts their volumes.
        log_group: What they log to.
        image_id: What they start from.

    Attributes:
        roles: The role of the nodes of each kind, the user's or the cluster's own.
        principal: Stands for all roles.
        master_security_group: Group of the master alone.
        master: The master's node group.
        workers: The workers' node group.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        plan: ClusterPlan,
        cluster: str,
        network: ClusterNetwork,
        storage: ClusterStorage,
        coordination: Coordination,
        encryption_key: kms.IKey,
        log_group: logs.ILogGroup,
        image_id: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self._plan, self._cluster, self._network = plan, cluster, network
        self._storage, self._coordination = storage, coordination
        self._encryption_key, self._log_group, self._image_id = encryption_key, log_group, image_id
        self._programs = NodePrograms(
            self,
            "Programs",
            setup_scripts=plan.setup_scripts,
            run_script=plan.run_script,
            environment=plan.environment,
            environment_cache=plan.environment_cache,
        )
        own = {NodeRole.MASTER: plan.access.master_role, NodeRole.WORKER: plan.access.worker_role}
        self._identities = {role: self._make_role(role, own[role]) for role in NodeRole}
        self.roles = {kind: identity.role for kind, identity in self._identities.items()}
        coordination.admit_sender(coordination.worker_queue, self.roles[NodeRole.MASTER])
        coordination.admit_sender(coordination.report_queue, self.roles[NodeRole.WORKER])
        self.principal = NodesPrincipal(list(self._identities.values()))
        for source in plan.storage.data:
            if readers := [identity for kind, identity in self._identities.items() if source.is_read_by(kind)]:
                source.grant_key(NodesPrincipal(readers))
        if plan.environment_cache is not None:
            plan.environment_cache.grant_key(NodesPrincipal([self._identities[NodeRole.MASTER]]))
        self.master_security_group = self._make_master_security_group()
        self._placement = ec2.CfnPlacementGroup(self, "Placement", strategy="cluster") if plan.placed_roles else None
        self.master = self._make_master()
        self.workers = self._make_workers()

    @property
    def rights(self) -> list[IDependable]:
        """What the nodes may do, with what users grant them later."""
        return [part for identity in self._identities.values() for part in (identity.role, identity.home)]

    def _make_role(self, node_role: NodeRole, own: iam.IRole | None) -> NodeIdentity:
        is_master = node_role is NodeRole.MASTER
        statements = [
            *(
                master_statements(self._coordination, self._cluster, self._encryption_key)
                if is_master
                else worker_statements(self._coordination, self._cluster, self._encryption_key)
            ),
            *session_statements(),
            log_statement(self._log_group, node_role),
            self._programs.read_statement(node_role),
            *self._storage.mount_statements(),
            *(
                statement
                for source in self._plan.storage.data
                if source.is_read_by(node_role)
                for statement in source.read_statements()
            ),
            *(self._plan.environment_cache.master_statements() if is_master and self._plan.environment_cache else ()),
        ]
        name = f"{node_role.name.title()}Role"
        return make_node_role(self, name, node_role=node_role, statements=statements, own=own)

    def _make_master_security_group(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self, "MasterSecurityGroup", vpc=self._network.vpc, description="Master of a deep-learning cluster"
        )
        if self._plan.ssh_peer is not None:
            group.add_ingress_rule(self._plan.ssh_peer, ec2.Port.tcp(22), "SSH from the peer")
        return group

    def _make_master(self) -> NodeGroup:
        return NodeGroup(
            self,
            "Master",
            cluster=self._cluster,
            node_role=NodeRole.MASTER,
            facts=self._plan.master,
            image=self._plan.image,
            image_id=self._image_id,
            role=self.roles[NodeRole.MASTER],
            user_data=self._render_user_data(NodeRole.MASTER),
            subnet=self._network.master_subnet,
            security_groups=[
                self._network.security_group,
                self.master_security_group,
                *self._plan.access.security_groups,
            ],
            topic=self._coordination.topic,
            max_capacity=1,
            purchase=self._plan.master_purchase,
            is_public=self._network.has_public_master,
            volume_size=self._plan.volume_size,
            encryption_key=self._encryption_key,
            key_name=self._plan.key_name,
            placement_group_name=self._name_placement(NodeRole.MASTER),
        )

    def _make_workers(self) -> NodeGroup:
        return NodeGroup(
            self,
            "Workers",
            cluster=self._cluster,
            node_role=NodeRole.WORKER,
            facts=self._plan.workers,
            image=self._plan.image,
            image_id=self._image_id,
            role=self.roles[NodeRole.WORKER],
            user_data=self._render_user_data(NodeRole.WORKER),
            subnet=self._network.worker_subnet,
            security_groups=[self._network.security_group, *self._plan.access.security_groups],
            topic=self._coordination.topic,
            max_capacity=self._plan.capacity.maximum,
            purchase=self._plan.purchase,
            volume_size=self._plan.volume_size,
            encryption_key=self._encryption_key,
            key_name=self._plan.key_name,
            placement_group_name=self._name_placement(NodeRole.WORKER),
        )

    def _name_placement(self, node_role: NodeRole) -> str | None:
        if self._placement is not None and node_role in self._plan.placed_roles:
            return self._placement.ref
        return self._plan.purchase_of(node_role).placement_group or None

    def _render_user_data(self, node_role: NodeRole) -> NodeUserData:
        idle = self._plan.spending.stop_when_idle
        return self._programs.user_data(
            cluster=self._cluster,
            node_role=node_role,
            coordination=self._coordination,
            # Checked by `OwnAccess`: an imported role has no id.
            worker_role=cast("iam.Role", self.roles[NodeRole.WORKER]),
            file_system=self._storage.settings,
            needs=JobNeeds(
                hardware=self._plan.hardware,
                data=tuple(source.settings for source in self._plan.storage.data),
                environment=self._programs.environment,
                lustre=self._storage.lustre,
                has_head_node=self._plan.has_head_node,
            ),
            facts=self._plan.master if node_role is NodeRole.MASTER else self._plan.workers,
            image=self._plan.image,
            worker_min_capacity=self._plan.capacity.minimum,
            setup_seconds=self._plan.setup_seconds,
            log_group=self._log_group.log_group_name,
            stop_when_idle_seconds=0 if idle is None else int(idle.to_seconds()),
        )
