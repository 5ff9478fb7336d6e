"""IAM roles of the nodes, new or the user's, and the principal that represents them in grants."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jsii
from aws_cdk import Annotations, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct, DependencyGroup, IConstruct

from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_contract.names import NodeRole

ROLE_NOT_CHANGED = "deeplearning_cdk:roleNotChanged"

_ROLE_PROPS = {NodeRole.MASTER: "master.role", NodeRole.WORKER: "workers.role"}


@dataclass(frozen=True)
class NodeIdentity:
    """
    IAM role of the master or of the workers.

    `policy_scope` is the scope of its policies: the role itself or, for a user's role, which may belong to another
    stack, a construct of the cluster. A resource that depends on the scope depends on the policies too.
    """

    role: iam.IRole
    policy_scope: IConstruct

    @property
    def takes_policies(self) -> bool:
        """True unless the user imported the role as immutable."""
        return not is_immutable(self.role)


def check_roles(master: iam.IRole | None, worker: iam.IRole | None) -> None:
    """
    Check the user's roles; None for those that the cluster makes.

    Raises:
        ValueError: EC2 cannot assume one, or both are the same.
    """
    for prop, role in (("master.role", master), ("workers.role", worker)):
        _check_trust(prop, role)
    if master is not None and worker is not None and worker.node.path == master.node.path:
        raise ValueError(
            f"workers.role must not be that of the master, got {worker.node.path} twice; pass two roles, because "
            "the master may do more than a worker"
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
    """Create the IAM role of a node role, or use the user's `own`, and attach the statements to it."""
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
        attach_rights(own, rights, identity.policy_scope)
        return identity
    actions = sorted({action for statement in rights for action in statement.actions})
    Annotations.of(scope).add_warning_v2(
        f"{ROLE_NOT_CHANGED}:{node_role.value}",
        f"{_ROLE_PROPS[node_role]} was imported as immutable, so it must already allow "
        f"{', '.join(actions)} on the resources of this stack; import it with mutable=True, or pass a role of the app",
    )
    return identity


def is_immutable(role: iam.IRole) -> bool:
    """
    Return whether the CDK ignores policies that are added to a role.

    It exports no class of such roles; they are recognized by the ids that it gives to them and to the roles that they
    wrap (aws-cdk-lib 2.275.0, aws-iam/lib/role.ts).
    """
    scope = role.node.scope
    wraps = scope is not None and scope.node.try_find_child(f"MutableRole{role.node.id}") is not None
    return wraps or role.node.id.startswith("ImmutableRole")


def attach_rights(
    role: iam.IRole, statements: Sequence[iam.PolicyStatement], scope: IConstruct | None = None
) -> iam.ManagedPolicy:
    """
    Attach statements to a role, in a managed policy below `scope` or else below the role.

    A resource that depends on the role then depends on its permissions too.
    """
    # Minimized with any feature flags of the consumer, so that the template stays the same.
    document = iam.PolicyDocument(statements=list(statements), minimize=True)
    policy = iam.ManagedPolicy(cast("Construct", scope or role), "Rights", document=document, roles=[role])
    resources = [resource for each in Stack.of(policy).resolve(document)["Statement"] for resource in _list(each)]
    if wildcards := [resource for resource in resources if "*" in str(resource)]:
        acknowledge(policy, "wildcard-resources", findings=wildcards)
    return policy


def _list(statement: Mapping[str, Any]) -> list[Any]:
    """Return the resources of a resolved statement, in which a single one is no list."""
    resources = statement["Resource"]
    return resources if isinstance(resources, list) else [resources]


@jsii.implements(iam.IPrincipal)
class NodesPrincipal:
    """Principal of the roles of all nodes, so that a grant to the cluster applies to each of them."""

    def __init__(self, identities: Sequence[NodeIdentity]) -> None:
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
        """Add a statement to the managed policy `Grants` of every role, which the first statement creates."""
        if not self._grants:
            self._grants = [_find_grants(each) for each in self._identities if each.takes_policies]
        for policy in self._grants:
            policy.add_statements(statement)
        return iam.AddToPrincipalPolicyResult(statement_added=True, policy_dependable=DependencyGroup(*self._grants))

    def add_to_policy(self, statement: iam.PolicyStatement) -> bool:
        """Add a statement to a policy of every role."""
        return self.add_to_principal_policy(statement).statement_added


def _find_grants(identity: NodeIdentity) -> iam.ManagedPolicy:
    """Return the policy of a role's grants, which several principals can share."""
    found = identity.policy_scope.node.try_find_child("Grants")
    if isinstance(found, iam.ManagedPolicy):
        return found
    return iam.ManagedPolicy(cast("Construct", identity.policy_scope), "Grants", roles=[identity.role])
