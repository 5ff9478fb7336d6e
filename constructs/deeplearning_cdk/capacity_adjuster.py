"""The Lambda that adjusts the wanted capacity to what launched, and what wakes it."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct, DependencyGroup, IDependable

from deeplearning_cdk.coordination import Coordination
from deeplearning_cdk.node_permissions import group_arns
from deeplearning_cdk.payload import pack_adjuster
from deeplearning_contract.names import CLUSTER_TAG
from deeplearning_contract.settings import AdjusterSettings

SETTLE_SECONDS = 10
"""Time between the two equal reads that a decision needs."""


class CapacityAdjuster(Construct):
    """
    The capacity adjuster with its log, its rights, its subscription and its one-minute timer.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster's name, by whose tag the groups are found.
        coordination: State item, queues and topic.
        worker_min_capacity: Fewest workers with which the user wants the cluster.

    Attributes:
        function: The Lambda function.
        role: Its role.
        readiness: What must exist before the first group, so that no event and no minute is lost.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: str,
        coordination: Coordination,
        worker_min_capacity: int,
    ) -> None:
        super().__init__(scope, construct_id)
        log_group = logs.LogGroup(
            self, "Log", retention=logs.RetentionDays.ONE_MONTH, removal_policy=RemovalPolicy.DESTROY
        )
        self.role = self._make_role(cluster, coordination, log_group)
        settings = AdjusterSettings(
            cluster=cluster,
            state_table=coordination.state_table.table_name,
            master_queue_url=coordination.master_queue.queue_url,
            signal_url=coordination.signal_url,
            worker_min_capacity=worker_min_capacity,
            settle_seconds=SETTLE_SECONDS,
        )
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="capacity_adjuster.handler.handle",
            code=lambda_.Code.from_asset(pack_adjuster().path),
            role=self.role,
            environment=settings.to_environment(),
            timeout=Duration.minutes(2),
            memory_size=256,
            log_group=log_group,
            description="Adjusts the capacity of a deep-learning cluster to what launched",
        )
        self._wake_by_topic(coordination.topic)
        self._wake_by_timer()
        readiness = DependencyGroup()
        readiness.add(self)
        self.readiness: IDependable = readiness

    def _wake_by_topic(self, topic: sns.ITopic) -> None:
        # The ids that LambdaSubscription and the rule's target would give depend on the stack's name.
        self.function.add_permission(
            "AllowTopic", principal=iam.ServicePrincipal("sns.amazonaws.com"), source_arn=topic.topic_arn
        )
        sns.Subscription(
            self,
            "Subscription",
            topic=topic,
            protocol=sns.SubscriptionProtocol.LAMBDA,
            endpoint=self.function.function_arn,
        )

    def _wake_by_timer(self) -> None:
        timer = events.CfnRule(
            self,
            "Timer",
            schedule_expression="rate(1 minute)",
            state="ENABLED",
            targets=[events.CfnRule.TargetProperty(arn=self.function.function_arn, id="Adjuster")],
        )
        self.function.add_permission(
            "AllowTimer", principal=iam.ServicePrincipal("events.amazonaws.com"), source_arn=timer.attr_arn
        )

    def _make_role(self, cluster: str, coordination: Coordination, log_group: logs.LogGroup) -> iam.Role:
        statements = [
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]
            ),
            iam.PolicyStatement(
                actions=["dynamodb:GetItem", "dynamodb:PutItem"], resources=[coordination.state_table.table_arn]
            ),
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[coordination.master_queue.queue_arn]),
            iam.PolicyStatement(
                # Describing groups takes no resource in IAM.
                actions=["autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"],
                resources=["*"],
            ),
            iam.PolicyStatement(
                actions=[
                    "autoscaling:ResumeProcesses",
                    "autoscaling:SetDesiredCapacity",
                    "autoscaling:SuspendProcesses",
                ],
                resources=[group_arns()],
                conditions={"StringEquals": {f"autoscaling:ResourceTag/{CLUSTER_TAG}": cluster}},
            ),
        ]
        return iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description="Capacity adjuster of a deep-learning cluster",
            inline_policies={"Adjust": iam.PolicyDocument(statements=statements, minimize=True)},
        )
