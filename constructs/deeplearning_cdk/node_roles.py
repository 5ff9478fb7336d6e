"""The roles of the nodes, and the one principal that stands for both."""

import json
from collections.abc import Iterable, Sequence

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct, DependencyGroup

from deeplearning_cdk.acknowledged_rules import acknowledge
from deeplearning_contract.names import NodeRole


def make_node_role(
    scope: Construct, construct_id: str, *, node_role: NodeRole, statements: Iterable[iam.PolicyStatement]
) -> iam.Role:
    """
    Make the role of the nodes of a role.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        node_role: What the nodes are for.
        statements: What they may do.
    """
    role = iam.Role(
        scope,
        construct_id,
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        description=f"Nodes of a deep-learning cluster: {node_role.value}",
    )
    attach_rights(role, list(statements))
    return role


def attach_rights(role: iam.Role, statements: Sequence[iam.PolicyStatement]) -> iam.ManagedPolicy:
    """
    Give a role its rights, in a managed policy below it: whoever waits for the role waits for its rights too.

    Args:
        role: The role.
        statements: What it may do.
    """
    # Minimized whatever the consumer's feature flags say, so that the template stays the same.
    document = iam.PolicyDocument(statements=list(statements), minimize=True)
    policy = iam.ManagedPolicy(role, "Rights", document=document, roles=[role])
    resolve = Stack.of(role).resolve
    resources = [resource for statement in statements for resource in statement.resources]
    wildcards = {json.dumps(resolve(resource)): resource for resource in resources if "*" in str(resolve(resource))}
    if wildcards:
        acknowledge(policy, "wildcard-resources", findings=list(wildcards.values()))
    return policy


@jsii.implements(iam.IPrincipal)
class NodesPrincipal:
    """Stands for the roles of all nodes, so that a grant to the cluster reaches each of them."""

    def __init__(self, roles: Sequence[iam.Role]) -> None:
        """
        Bundle roles.

        Args:
            roles: The roles.
        """
        self._roles = list(roles)
        self._composite = iam.CompositePrincipal(*(iam.ArnPrincipal(role.role_arn) for role in roles))
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
        return self._roles[0].principal_account

    def add_to_principal_policy(self, statement: iam.PolicyStatement) -> iam.AddToPrincipalPolicyResult:
        """
        Add a statement to a policy of every role, a managed one, which is made for the first of them.

        Args:
            statement: The statement.
        """
        if not self._grants:
            self._grants = [_find_grants(role) for role in self._roles]
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


def _find_grants(role: iam.Role) -> iam.ManagedPolicy:
    """Return the policy of a role's grants, which several principals may share."""
    found = role.node.try_find_child("Grants")
    return found if isinstance(found, iam.ManagedPolicy) else iam.ManagedPolicy(role, "Grants", roles=[role])
