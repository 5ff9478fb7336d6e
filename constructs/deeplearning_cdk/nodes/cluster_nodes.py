"""Nodes of a cluster: roles, programs, launch templates and groups of the master and the workers."""

import hashlib
from typing import cast

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from deeplearning_cdk.coordination.node_permissions import (
    log_statement,
    master_statements,
    session_statements,
    worker_statements,
)
from deeplearning_cdk.network.zone_subnets import NodePlace
from deeplearning_cdk.nodes.login_commands import ssh_command
from deeplearning_cdk.nodes.node_group import NodeGroup
from deeplearning_cdk.nodes.plan import NodePlan
from deeplearning_cdk.nodes.programs import NodePrograms, NodeSite
from deeplearning_cdk.security.node_roles import NodeIdentity, NodesPrincipal, make_node_role
from deeplearning_contract.names import NodeRole

_GROUP_IDS = {NodeRole.MASTER: "Master", NodeRole.WORKER: "Workers"}


class ClusterNodes(Construct):
    """
    Master and workers of a cluster.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        plan: The nodes of both roles.
        site: Resources that the nodes of both roles use.

    Attributes:
        roles: The IAM role of the nodes of each role, the user's or the cluster's own.
        principal: Principal of all roles.
        master_security_group: Group of the master alone.
        groups: The node group of each role.
        fallbacks: The node groups of each fallback, by its candidate tag.
        submission: Where jobs are submitted.
        ssh_command: Command that opens an SSH session on the master; None without `ssh_peer` and a key pair.
    """

    def __init__(self, scope: Construct, construct_id: str, plan: NodePlan, site: NodeSite) -> None:
        super().__init__(scope, construct_id)
        self._plan, self._site = plan, site
        self._programs = NodePrograms(self, "Programs", plan, site)
        self.submission = self._programs.submission
        self._identities = {role: self._make_role(role) for role in plan.roles}
        self.roles = {role: identity.role for role, identity in self._identities.items()}
        coordination = site.coordination
        coordination.allow_only_sender(coordination.worker_queue, self.roles[NodeRole.MASTER])
        coordination.allow_only_sender(coordination.report_queue, self.roles[NodeRole.WORKER])
        self.principal = NodesPrincipal(list(self._identities.values()))
        self._grant_keys()
        self.master_security_group = self._make_master_security_group()
        self.groups = self._make_groups(self, plan, site.network.place)
        self.fallbacks = {
            fallback.tag: self._make_groups(
                Construct(self, f"Candidate{_digest(fallback.tag)}"), fallback, site.network.places[fallback.tag]
            )
            for fallback in plan.made_fallbacks
        }
        self.ssh_command = self._describe_ssh()

    @property
    def readiness(self) -> list[IDependable]:
        """
        Dependencies of the first node: the master's group, all permissions with those that users grant, and the
        submission document, whose failure must cost no instance.
        """
        rights = [part for identity in self._identities.values() for part in (identity.role, identity.policy_scope)]
        return [self.master_security_group, self.submission, *rights]

    def _make_groups(self, scope: Construct, plan: NodePlan, place: NodePlace) -> dict[NodeRole, NodeGroup]:
        """
        Make the groups of a candidate.

        Each candidate has a master group of its own, although some could share one: the adjuster finds the groups of a
        candidate by one tag, and the master's settings have the workers' hardware. An empty group costs nothing.
        """
        site, placed = self._site, plan.placed_roles
        placement = ec2.CfnPlacementGroup(scope, "Placement", strategy="cluster").ref if placed else None
        # Checked by the plan: an imported role has no id.
        worker_role = cast("iam.Role", self.roles[NodeRole.WORKER])
        own_groups = {NodeRole.MASTER: [self.master_security_group], NodeRole.WORKER: []}
        subnets = {NodeRole.MASTER: place.master_subnet, NodeRole.WORKER: place.worker_subnet}
        return {
            role: NodeGroup(
                scope,
                _GROUP_IDS[role],
                node_role=role,
                plan=plan.roles[role],
                image=plan.image,
                site=site,
                role=self.roles[role],
                user_data=self._programs.user_data(plan, role, worker_role),
                security_groups=[site.network.security_group, *own_groups[role], *site.security_groups],
                candidate=plan.tag,
                subnet=subnets[role],
                is_public=role is NodeRole.MASTER and place.has_public_master,
                placement_group_name=placement if role in placed else plan.roles[role].purchase.placement_group or None,
            )
            for role in plan.roles
        }

    def _make_role(self, node_role: NodeRole) -> NodeIdentity:
        site, is_master = self._site, node_role is NodeRole.MASTER
        list_statements = master_statements if is_master else worker_statements
        statements = [
            *list_statements(site.coordination, site.cluster, site.key_arn),
            *session_statements(),
            log_statement(site.log_group, node_role),
            *self._programs.read_statements(node_role),
            *site.storage.file_system.mount_statements(),
            *(right for source in site.data if source.is_read_by(node_role) for right in source.read_statements()),
            *(site.environment_cache.master_statements() if is_master and site.environment_cache else ()),
        ]
        own = self._plan.roles[node_role].value.role
        name = f"{node_role.name.title()}Role"
        return make_node_role(self, name, node_role=node_role, statements=statements, own=own)

    def _grant_keys(self) -> None:
        for source in self._site.data:
            if readers := [identity for role, identity in self._identities.items() if source.is_read_by(role)]:
                source.grant_key(NodesPrincipal(readers))
        if self._site.environment_cache is not None:
            self._site.environment_cache.grant_key(NodesPrincipal([self._identities[NodeRole.MASTER]]))

    def _make_master_security_group(self) -> ec2.SecurityGroup:
        vpc = self._site.network.vpc
        group = ec2.SecurityGroup(self, "MasterSecurityGroup", vpc=vpc, description="Master of a deep-learning cluster")
        if self._site.ssh_peer is not None:
            group.add_ingress_rule(self._site.ssh_peer, ec2.Port.tcp(22), "SSH from the peer")
        return group

    def _describe_ssh(self) -> str | None:
        site = self._site
        if site.ssh_peer is None or site.key_name is None:
            return None
        is_public, user = site.network.has_public_master, self._plan.image.login_user
        return ssh_command(site.cluster, Stack.of(self).region, user, is_public=is_public)


def _digest(tag: str) -> str:
    """Return the part of construct ids that stands for a candidate."""
    return hashlib.sha256(tag.encode()).hexdigest()[:8]
