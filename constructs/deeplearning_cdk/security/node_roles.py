"""The roles of the nodes, made here or the user's, and the one principal that stands for both."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import jsii
from aws_cdk import Annotations, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, DependencyGroup, IConstruct

from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_contract.names import NodeRole

ROLE_NOT_CHANGED = "deeplearning_cdk:roleNotChanged"


@dataclass(frozen=True)
class NodeIdentity:
    """
    The role of the nodes of a role.

    Attributes:
        role: The role.
        home: Where its policies stand: the role itself, or a place of the cluster's for a role of the user's, which
            another stack may have. Whoever waits for it waits for the rights too.
    """

    role: iam.IRole
    home: IConstruct

    @property
    def takes_policies(self) -> bool:
        """Whether policies can be attached to it, which the user may have forbidden."""
        return not is_immutable(self.role)


@dataclass(frozen=True)
class OwnAccess:
    """
    What nodes are to other services: the user's roles and security groups.

    Attributes:
        master_role: Role of the master; None for a new one.
        worker_role: Role of the workers; None for a new one.
        security_groups: Groups of which every node is a member too.
    """

    master_role: iam.IRole | None = None
    worker_role: iam.IRole | None = None
    security_groups: tuple[ec2.ISecurityGroup, ...] = ()

    def __post_init__(self) -> None:
        """Refuse roles that EC2 cannot assume, and those by which a forged report could not be told from a worker's."""
        for prop, role in (("master_role", self.master_role), ("worker_role", self.worker_role)):
            _check_trust(prop, role)
        master, worker = self.master_role, self.worker_role
        if worker is None:
            return
        if master is not None and worker.node.path == master.node.path:
            raise ValueError(
                f"worker_role must not be that of the master, got {worker.node.path} twice; pass two roles, because "
                "the master may do more than a worker"
            )
        if not isinstance(worker, iam.Role):
            raise ValueError(  # noqa: TRY004 - a role of the wrong origin, not of the wrong type
                "worker_role must be a role of this app, got an imported one; make it with iam.Role, because the "
                "master believes the reports of workers by the role's unique id, which an imported role does not have"
            )


def _check_trust(prop: str, role: iam.IRole | None) -> None:
    if not isinstance(role, iam.Role) or role.assume_role_policy is None:
        return
    if "ec2.amazonaws.com" not in json.dumps(Stack.of(role).resolve(role.assume_role_policy)):
        raise ValueError(
            f"{prop} must be one that EC2 may assume, got {role.node.path}, which trusts others; "
            'make it with assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")'
        )


def make_node_role(
    scope: Construct,
    construct_id: str,
    *,
    node_role: NodeRole,
    statements: Iterable[iam.PolicyStatement],
    own: iam.IRole | None = None,
) -> NodeIdentity:
    """
    Make the role of the nodes of a role, or take the user's, and give it its rights.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        node_role: What the nodes are for.
        statements: What they may do.
        own: The user's role. Default: a new one.
    """
    rights = list(statements)
    if own is None:
        role = iam.Role(
            scope,
            construct_id,
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description=f"Nodes of a deep-learning cluster: {node_role.value}",
        )
        attach_rights(role, rights)
        return NodeIdentity(role, role)
    identity = NodeIdentity(own, Construct(scope, construct_id))
    if identity.takes_policies:
        attach_rights(own, rights, identity.home)
        return identity
    actions = sorted({action for statement in rights for action in statement.actions})
    Annotations.of(scope).add_warning_v2(
        f"{ROLE_NOT_CHANGED}:{node_role.value}",
        f"{node_role.value}_role was imported as one that is not changed, so it must already allow "
        f"{', '.join(actions)} on what this stack makes; import it with mutable=True, or pass a role of the app",
    )
    return identity


def is_immutable(role: iam.IRole) -> bool:
    """
    Return whether the CDK leaves a role as it is.

    It exports no class of such roles, and names them and what they wrap (aws-cdk-lib 2.275.0, aws-iam/lib/role.ts).
    """
    scope = role.node.scope
    wraps = scope is not None and scope.node.try_find_child(f"MutableRole{role.node.id}") is not None
    return wraps or role.node.id.startswith("ImmutableRole")


def attach_rights(
    role: iam.IRole, statements: Sequence[iam.PolicyStatement], home: IConstruct | None = None
) -> iam.ManagedPolicy:
    """
    Give a role its rights, in a managed policy below it: whoever waits for the role waits for its rights too.

    Args:
        role: The role.
        statements: What it may do.
        home: Where the policy stands. Default: below the role.
    """
    # Minimized whatever the consumer's feature flags say, so that the template stays the same.
    document = iam.PolicyDocument(statements=list(statements), minimize=True)
    policy = iam.ManagedPolicy(cast("Construct", home or role), "Rights", document=document, roles=[role])
    resolve = Stack.of(policy).resolve
    resources = [resource for statement in statements for resource in statement.resources]
    wildcards = {json.dumps(resolve(resource)): resource for resource in resources if "*" in str(resolve(resource))}
    if wildcards:
        acknowledge(policy, "wildcard-resources", findings=list(wildcards.values()))
    return policy


@jsii.implements(iam.IPrincipal)
class NodesPrincipal:
    """Stands for the roles of all nodes, so that a grant to the cluster reaches each of them."""

    def __init__(self, identities: Sequence[NodeIdentity]) -> None:
        """
        Bundle roles.

        Args:
            identities: The roles, and where their policies stand.
        """
        self._identities = list(identities)
        self._composite = iam.CompositePrincipal(*(iam.ArnPrincipal(each.role.role_arn) for each in identities))
        self._grants: list[iam.ManagedPolicy] = []

    @property
    def assume_role_action(self) -> str:
        """The action of a trust policy."""
        return self._composite.assume_role_action

    @property
    def policy_fragment(self) -> iam.PrincipalPolicyFragment:
        """The roles as principals of a resource policy."""
        return self._composite.policy_fragment

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """Itself."""
        return self

    @property
    def principal_account(self) -> str | None:
        """The account of the roles."""
        return self._identities[0].role.principal_account

    def add_to_principal_policy(self, statement: iam.PolicyStatement) -> iam.AddToPrincipalPolicyResult:
        """
        Add a statement to a policy of every role, a managed one, which is made for the first of them.

        Args:
            statement: The statement.
        """
        if not self._grants:
            self._grants = [_find_grants(each) for each in self._identities if each.takes_policies]
        for policy in self._grants:
            policy.add_statements(statement)
        return iam.AddToPrincipalPolicyResult(statement_added=True, policy_dependable=DependencyGroup(*self._grants))

    def add_to_policy(self, statement: iam.PolicyStatement) -> bool:
        """
        Add a statement to a policy of every role.

        Args:
            statement: The statement.
        """
        return self.add_to_principal_policy(statement).statement_added


def _find_grants(identity: NodeIdentity) -> iam.ManagedPolicy:
    """Return the policy of a role's grants, which several principals may share."""
    found = identity.home.node.try_find_child("Grants")
    if isinstance(found, iam.ManagedPolicy):
        return found
    return iam.ManagedPolicy(cast("Construct", identity.home), "Grants", roles=[identity.role])
