"""What the nodes of each role may do, and the one principal that stands for both roles."""

from collections.abc import Iterable, Sequence

import jsii
from aws_cdk import Aws, Fn
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct, DependencyGroup

from deeplearning_cdk.coordination import Coordination
from deeplearning_contract.names import CLUSTER_TAG, NodeRole


def make_node_role(
    scope: Construct, construct_id: str, *, node_role: NodeRole, statements: Iterable[iam.PolicyStatement]
) -> iam.Role:
    """
    Make the role of the nodes of a role, with Session Manager.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        node_role: What the nodes are for.
        statements: What they may do.
    """
    session_manager = Fn.sub("arn:${AWS::Partition}:iam::aws:policy/AmazonSSMManagedInstanceCore")
    return iam.Role(
        scope,
        construct_id,
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        description=f"Nodes of a deep-learning cluster: {node_role.value}",
        managed_policies=[
            iam.ManagedPolicy.from_managed_policy_arn(scope, f"{construct_id}SessionManager", session_manager)
        ],
        # Minimized whatever the consumer's feature flags say, so that the template stays the same.
        inline_policies={"Node": iam.PolicyDocument(statements=list(statements), minimize=True)},
    )


def master_statements(coordination: Coordination, cluster: str) -> list[iam.PolicyStatement]:
    """
    Return what the master does with the meeting points, and with the groups of its cluster.

    Args:
        coordination: The meeting points.
        cluster: The cluster's name, by whose tag its groups are known.
    """
    return [
        # Who ends the cluster from the master asks how large its groups are; that call takes no resource in IAM.
        iam.PolicyStatement(actions=["autoscaling:DescribeAutoScalingGroups"], resources=["*"]),
        iam.PolicyStatement(
            actions=["autoscaling:SetDesiredCapacity", "autoscaling:SetInstanceHealth"],
            resources=[group_arns()],
            conditions={"StringEquals": {f"autoscaling:ResourceTag/{CLUSTER_TAG}": cluster}},
        ),
        iam.PolicyStatement(
            actions=["dynamodb:GetItem", "dynamodb:PutItem"], resources=[coordination.state_table.table_arn]
        ),
        iam.PolicyStatement(
            actions=["sqs:DeleteMessage", "sqs:ReceiveMessage"],
            resources=[coordination.master_queue.queue_arn, coordination.report_queue.queue_arn],
        ),
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[coordination.worker_queue.queue_arn]),
    ]


def worker_statements(coordination: Coordination) -> list[iam.PolicyStatement]:
    """Return what a worker does with the meeting points; it can neither write the state nor ring anyone."""
    return [
        iam.PolicyStatement(actions=["dynamodb:GetItem"], resources=[coordination.state_table.table_arn]),
        iam.PolicyStatement(actions=["sqs:ReceiveMessage"], resources=[coordination.worker_queue.queue_arn]),
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[coordination.report_queue.queue_arn]),
    ]


def group_arns() -> str:
    """Return the pattern of all Auto Scaling groups here; a statement with it asks for the cluster's tag."""
    return Fn.sub("arn:${AWS::Partition}:autoscaling:${AWS::Region}:${AWS::AccountId}:autoScalingGroup:*")


def read_statement(assets: Sequence[s3_assets.Asset]) -> iam.PolicyStatement:
    """Return the right to read these assets, and nothing else of their bucket."""
    return iam.PolicyStatement(
        actions=["s3:GetObject"],
        resources=[f"arn:{Aws.PARTITION}:s3:::{asset.s3_bucket_name}/{asset.s3_object_key}" for asset in assets],
    )


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
        Add a statement to the policy of every role.

        Args:
            statement: The statement.
        """
        results = [role.add_to_principal_policy(statement) for role in self._roles]
        dependables = [result.policy_dependable for result in results if result.policy_dependable is not None]
        return iam.AddToPrincipalPolicyResult(
            statement_added=all(result.statement_added for result in results),
            policy_dependable=DependencyGroup(*dependables),
        )

    def add_to_policy(self, statement: iam.PolicyStatement) -> bool:
        """
        Add a statement to the policy of every role.

        Args:
            statement: The statement.
        """
        return self.add_to_principal_policy(statement).statement_added
