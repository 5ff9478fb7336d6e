"""Capacity adjuster: Lambda function with its triggers, and the stack's request for capacity."""

from collections.abc import Sequence

from aws_cdk import CustomResource, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.capacity.candidate import CandidateSearch
from deeplearning_cdk.capacity.spending import Spending
from deeplearning_cdk.coordination.cluster_function import ClusterFunction
from deeplearning_cdk.coordination.coordination import Coordination
from deeplearning_cdk.coordination.messages import allow_rule, keep_undelivered, subscribe_function
from deeplearning_cdk.coordination.node_permissions import coordination_key_statements, event_statement, group_arns
from deeplearning_cdk.coordination.payload import pack_adjuster
from deeplearning_cdk.pseudo_parameters import REGION
from deeplearning_cdk.security.encryption import ClusterEncryption
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.names import CLUSTER_TAG, FIRST_CANDIDATE
from deeplearning_contract.settings import AdjusterSettings

_SETTLE_SECONDS = 10
"""Time between the two identical reads that a decision requires, in seconds."""
_ALARM_MINUTES = 3
"""Minutes of failures before the alarm: the next invocation recovers from a single throttled or denied call."""
_RESPONSE_TIME = Duration.minutes(10)
"""Lambda retries a failed invocation twice, after one and two minutes; CloudFormation's default is an hour."""


class CapacityAdjuster(ClusterFunction):
    """
    Capacity adjuster: a function that adjusts the capacity of the groups to the instances that launched.

    It is invoked by events of the groups, every minute, and before the workers' Capacity Block ends, to notify the
    nodes. Every minute it also looks whether a block that workers wait for has begun. It finds the groups by the tag of
    the cluster. The groups must depend on it, so that no event is lost.

    Attributes:
        alarm: Alarm on invocations that keep failing, without actions.
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
        worker_block_id: str = "",
        spending: Spending,
        search: CandidateSearch | None = None,
    ) -> None:
        settings = AdjusterSettings(
            cluster=cluster,
            state_table=coordination.state_table.table_name,
            master_queue_url=coordination.master_queue.queue_url,
            signal_url=coordination.signal_url,
            worker_min_capacity=worker_min_capacity,
            settle_seconds=_SETTLE_SECONDS,
            capacity_reservation_id=capacity_reservation_id,
            worker_block_id=worker_block_id,
            encryption_key=encryption.key_arn,
            stop_after_seconds=0 if spending.stop_after is None else int(spending.stop_after.to_seconds()),
            candidates=",".join(search.order) if search else "",
            first_candidate=search.first if search else "",
            patience_seconds=search.patience_seconds if search else 0,
            search_seconds=search.search_seconds if search else 0,
        )
        super().__init__(
            scope,
            construct_id,
            archive=pack_adjuster().path,
            handler="capacity_adjuster.handler.handle",
            description="Adjusts the capacity of a deep-learning cluster to what launched",
            role_description="Capacity adjuster of a deep-learning cluster",
            statements=_adjuster_statements(
                settings,
                coordination,
                events=(EventKind.FAILED, EventKind.FINISHED, *([EventKind.CAPACITY_MOVED] if search else ())),
            ),
            coordination=coordination,
            encryption=encryption,
            timeout=Duration.minutes(2),
            memory_mib=256,
            environment=settings.to_environment(),
        )
        coordination.allow_only_sender(coordination.master_queue, self.role)
        self._dead_letters = coordination.dead_letters
        # The ids that LambdaSubscription and the rules' targets generate depend on the stack's name.
        self.function.add_permission(
            "AllowTopic", principal=iam.ServicePrincipal("sns.amazonaws.com"), source_arn=coordination.topic.topic_arn
        )
        subscribe_function(self, self.function, coordination.topic, self._dead_letters)
        self._add_rule("Timer", schedule="rate(1 minute)")
        if capacity_reservation_id:
            self._add_rule("EndOfBlock", pattern=_block_end_pattern(capacity_reservation_id))
        self.alarm = self._make_alarm()

    def _add_rule(
        self, construct_id: str, *, schedule: str | None = None, pattern: dict[str, object] | None = None
    ) -> None:
        target = events.CfnRule.TargetProperty(
            arn=self.function.function_arn, id="Adjuster", dead_letter_config=keep_undelivered(self._dead_letters)
        )
        rule = events.CfnRule(
            self,
            construct_id,
            schedule_expression=schedule,
            event_pattern=pattern,
            state="ENABLED",
            targets=[target],
        )
        permission_id = f"Allow{construct_id}"
        self.function.add_permission(
            permission_id, principal=iam.ServicePrincipal("events.amazonaws.com"), source_arn=rule.attr_arn
        )
        allow_rule(self._dead_letters, rule, self.function.node.find_child(permission_id))

    def _make_alarm(self) -> cloudwatch.Alarm:
        # The alarm is for lasting failures: a lost event does no harm, since the function reads the groups every
        # minute.
        return cloudwatch.Alarm(
            self,
            "Errors",
            metric=self.function.metric_errors(period=Duration.minutes(1)),
            threshold=1,
            evaluation_periods=_ALARM_MINUTES,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description="The capacity adjuster of a deep-learning cluster keeps failing",
        )


def request_capacity(scope: Construct, adjuster: CapacityAdjuster, worker_desired_capacity: int) -> CustomResource:
    """
    Create the stack's request for capacity, which the adjuster fulfils after all dependencies exist.

    The groups are created without a desired capacity. CloudFormation completes a group "when the desired capacity is
    reached" (`AWS::AutoScaling::AutoScalingGroup`, `DesiredCapacity`), so a cluster that continues with fewer nodes
    would fail the stack. Instead, the adjuster sets the groups' capacity once when CloudFormation creates this
    resource, and once whenever a count changes: a capacity that a user sets afterwards is kept.
    """
    return CustomResource(
        Construct(scope, "RequestedCapacity"),
        "Resource",
        resource_type="Custom::RequestedCapacity",
        service_token=adjuster.function.function_arn,
        service_timeout=_RESPONSE_TIME,
        properties={"Master": "1", "Workers": str(worker_desired_capacity), "Candidate": FIRST_CANDIDATE},
    )


def _block_end_pattern(reservation_id: str) -> dict[str, object]:
    return {
        "source": ["aws.ec2"],
        # AWS's own pages differ in this text.
        "detail-type": ["Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"],
        "detail": {"capacity-reservation-id": [reservation_id]},
    }


def _adjuster_statements(
    settings: AdjusterSettings, coordination: Coordination, *, events: Sequence[EventKind]
) -> list[iam.PolicyStatement]:
    # IAM has no resource-level permissions for describing reservations either (Service Authorization Reference, EC2).
    read_block = iam.PolicyStatement(actions=["ec2:DescribeCapacityReservations"], resources=["*"])
    return [
        iam.PolicyStatement(
            actions=["dynamodb:GetItem", "dynamodb:PutItem"], resources=[coordination.state_table.table_arn]
        ),
        iam.PolicyStatement(
            actions=["sqs:SendMessage"],
            resources=[coordination.master_queue.queue_arn, coordination.dead_letters.queue_arn],
        ),
        *coordination_key_statements(settings.encryption_key),
        # Lambda decrypts the environment as the function's role. It grants that to the role by itself only where the
        # deploying principal may `kms:CreateGrant`; the sources are in security/test_permissions.py.
        iam.PolicyStatement(
            actions=["kms:Decrypt"],
            resources=[settings.encryption_key],
            conditions={"StringEquals": {"kms:ViaService": f"lambda.{REGION}.amazonaws.com"}},
        ),
        event_statement(settings.cluster, *events),
        iam.PolicyStatement(
            # IAM has no resource-level permissions for describing groups.
            actions=["autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"],
            resources=["*"],
        ),
        *([read_block] if settings.worker_block_id else ()),
        iam.PolicyStatement(
            actions=["autoscaling:ResumeProcesses", "autoscaling:SetDesiredCapacity", "autoscaling:SuspendProcesses"],
            resources=[group_arns()],
            conditions={"StringEquals": {f"autoscaling:ResourceTag/{CLUSTER_TAG}": settings.cluster}},
        ),
    ]
