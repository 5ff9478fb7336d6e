"""The Lambda that adjusts the wanted capacity to what launched, and what wakes it."""

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct, DependencyGroup, IDependable

from deeplearning_cdk.coordination import Coordination
from deeplearning_cdk.creation_order import prune_dependencies
from deeplearning_cdk.nodes.payload import pack_adjuster
from deeplearning_cdk.operations.dead_letters import admit_rule, keep_dead_letters, keep_undelivered
from deeplearning_cdk.operations.log_groups import make_log_group
from deeplearning_cdk.operations.spending import NO_LIMIT, Spending
from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_cdk.security.encryption import ClusterEncryption
from deeplearning_cdk.security.node_permissions import event_statement, group_arns, meeting_key_statements
from deeplearning_cdk.security.node_roles import attach_rights
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.names import CLUSTER_TAG
from deeplearning_contract.settings import AdjusterSettings

SETTLE_SECONDS = 10
"""Time between the two equal reads that a decision needs."""
_ALARM_MINUTES = 3
"""One throttled or denied call mends itself in the next minute."""


class CapacityAdjuster(Construct):
    """
    The capacity adjuster with its log, its rights, its subscription and its one-minute timer.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster's name, by whose tag the groups are found.
        coordination: State item, queues and topic.
        encryption: The cluster's key.
        worker_min_capacity: Fewest workers with which the user wants the cluster.
        capacity_reservation_id: The Capacity Block that the workers run in, whose end the nodes are told of.
            Default: none.
        spending: When the cluster stops. Default: never.

    Attributes:
        function: The Lambda function.
        role: Its role.
        alarm: Goes off when the function fails for minutes; the next minute tries again by itself. Give it actions.
        readiness: What must exist before the first group, so that no event and no minute is lost.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: str,
        coordination: Coordination,
        encryption: ClusterEncryption,
        worker_min_capacity: int,
        capacity_reservation_id: str = "",
        spending: Spending = NO_LIMIT,
    ) -> None:
        super().__init__(scope, construct_id)
        log_group = make_log_group(self, "Log", key=encryption.log_key)
        self.role = self._make_role(cluster, coordination, encryption.key, log_group)
        coordination.admit_sender(coordination.master_queue, self.role)
        settings = AdjusterSettings(
            cluster=cluster,
            state_table=coordination.state_table.table_name,
            master_queue_url=coordination.master_queue.queue_url,
            signal_url=coordination.signal_url,
            worker_min_capacity=worker_min_capacity,
            settle_seconds=SETTLE_SECONDS,
            capacity_reservation_id=capacity_reservation_id,
            encryption_key=encryption.key.key_arn,
            stop_after_seconds=0 if spending.stop_after is None else int(spending.stop_after.to_seconds()),
        )
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_14,
            handler="capacity_adjuster.handler.handle",
            code=lambda_.Code.from_asset(pack_adjuster().path),
            role=self.role,
            environment=settings.to_environment(),
            environment_encryption=encryption.key,
            timeout=Duration.minutes(2),
            memory_size=256,
            log_group=log_group,
            description="Adjusts the capacity of a deep-learning cluster to what launched",
        )
        keep_dead_letters(self.function, coordination.dead_letters)
        prune_dependencies(self.function)
        acknowledge(self.function, "function-concurrency")
        acknowledge(self.function, "function-outside-vpc")
        self._wake_by_topic(coordination.topic, coordination.dead_letters)
        self._wake_by_timer(coordination.dead_letters)
        if capacity_reservation_id:
            self._wake_by_end_of_block(capacity_reservation_id, coordination.dead_letters)
        self.alarm = self._make_alarm()
        self.readiness: IDependable = DependencyGroup(self)

    def _wake_by_topic(self, topic: sns.ITopic, dead_letters: sqs.Queue) -> None:
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
            dead_letter_queue=dead_letters,
        )

    def _wake_by_timer(self, dead_letters: sqs.Queue) -> None:
        timer = events.CfnRule(
            self,
            "Timer",
            schedule_expression="rate(1 minute)",
            state="ENABLED",
            targets=[self._make_target(dead_letters)],
        )
        self._admit(timer, "AllowTimer", dead_letters)

    def _make_target(self, dead_letters: sqs.Queue) -> events.CfnRule.TargetProperty:
        return events.CfnRule.TargetProperty(
            arn=self.function.function_arn, id="Adjuster", dead_letter_config=keep_undelivered(dead_letters)
        )

    def _admit(self, rule: events.CfnRule, permission_id: str, dead_letters: sqs.Queue) -> None:
        self.function.add_permission(
            permission_id, principal=iam.ServicePrincipal("events.amazonaws.com"), source_arn=rule.attr_arn
        )
        admit_rule(dead_letters, rule, self.function.node.find_child(permission_id))

    def _make_alarm(self) -> cloudwatch.Alarm:
        """Make an alarm about what goes on; an event that was lost is worth nothing, since the timer looks anew."""
        return cloudwatch.Alarm(
            self,
            "Errors",
            metric=self.function.metric_errors(period=Duration.minutes(1)),
            threshold=1,
            evaluation_periods=_ALARM_MINUTES,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description="The capacity adjuster of a deep-learning cluster fails again and again",
        )

    def _wake_by_end_of_block(self, reservation_id: str, dead_letters: sqs.Queue) -> None:
        # The wording differs between AWS's own pages.
        end = events.CfnRule(
            self,
            "EndOfBlock",
            event_pattern={
                "source": ["aws.ec2"],
                "detail-type": [
                    "Capacity Block Expiration Warning",
                    "Capacity Block Reservation Expiration Warning",
                ],
                "detail": {"capacity-reservation-id": [reservation_id]},
            },
            state="ENABLED",
            targets=[self._make_target(dead_letters)],
        )
        self._admit(end, "AllowEndOfBlock", dead_letters)

    def _make_role(self, cluster: str, coordination: Coordination, key: kms.IKey, log_group: logs.LogGroup) -> iam.Role:
        statements = [
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]
            ),
            iam.PolicyStatement(
                actions=["dynamodb:GetItem", "dynamodb:PutItem"], resources=[coordination.state_table.table_arn]
            ),
            iam.PolicyStatement(
                # Lambda itself sends to the second, as the function's role.
                actions=["sqs:SendMessage"],
                resources=[coordination.master_queue.queue_arn, coordination.dead_letters.queue_arn],
            ),
            *meeting_key_statements(key),
            _environment_key_statement(key),
            event_statement(cluster, EventKind.FAILED, EventKind.FINISHED),
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
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description="Capacity adjuster of a deep-learning cluster",
        )
        attach_rights(role, statements)
        return role


def _environment_key_statement(key: kms.IKey) -> iam.PolicyStatement:
    """
    Return the right to decrypt a function's environment, which Lambda does as the function's role.

    Lambda grants it to the role by itself only where whoever deploys may `kms:CreateGrant`; the sources are in
    security/test_permissions.py.
    """
    via_lambda = {"StringEquals": {"kms:ViaService": f"lambda.{Aws.REGION}.amazonaws.com"}}
    return iam.PolicyStatement(actions=["kms:Decrypt"], resources=[key.key_arn], conditions=via_lambda)
