"""Monitoring of a cluster: dashboard, alarms, budget and the topic of their notifications."""

from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from deeplearning_cdk.capacity.adjuster import CapacityAdjuster
from deeplearning_cdk.capacity.spending import ClusterBudget, Spending
from deeplearning_cdk.coordination.coordination import Coordination
from deeplearning_cdk.coordination.messages import allow_publishers, forward_events, make_topic
from deeplearning_cdk.operations.alarms import ClusterAlarms
from deeplearning_cdk.operations.dashboard import ClusterDashboard
from deeplearning_cdk.operations.metrics import ClusterMetrics
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem


class ClusterMonitoring(Construct):
    """
    Dashboard, alarms and budget of a cluster.

    Attributes:
        alarm_topic: Topic of alarms, budget notifications and failure events.
        alarms: The alarms.
        budget: The budget; None without `monthly_budget_usd`.
        dashboard: The dashboard.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        metrics: ClusterMetrics,
        session_command: str,
        has_gpus: bool,
        has_fallbacks: bool,
        formation_seconds: int,
        spending: Spending,
        alarm_topic: sns.ITopic | None,
        coordination: Coordination,
        adjuster: CapacityAdjuster,
        node_log: logs.ILogGroup,
        file_system: SharedFileSystem,
        encryption_key: kms.IKey,
    ) -> None:
        super().__init__(scope, construct_id)
        dead_letters = coordination.dead_letters
        self.alarm_topic: sns.ITopic = alarm_topic or make_topic(self, "Alarms", encryption_key=encryption_key)
        allow_publishers(self, self.alarm_topic)
        forward_events(self, metrics.cluster_name, self.alarm_topic, dead_letters)
        self.budget: ClusterBudget | None = None
        if spending.monthly_budget_usd is not None:
            self.budget = ClusterBudget(
                self,
                "Budget",
                cluster=metrics.cluster_name,
                monthly_usd=spending.monthly_budget_usd,
                alarm_topic=self.alarm_topic,
                stopped_by=adjuster.function if spending.budget_stops else None,
                dead_letters=dead_letters,
                encryption_key=encryption_key,
            )
        self.alarms = ClusterAlarms(
            self,
            "Watch",
            topic=self.alarm_topic,
            adjuster_errors=adjuster.alarm,
            metrics=metrics,
            dead_letters=dead_letters,
            setup_seconds=formation_seconds,
            has_gpus=has_gpus,
            budget_used_up=self.budget.used_up if self.budget else None,
        )
        self.dashboard = ClusterDashboard(
            self,
            "Dashboard",
            metrics=metrics,
            session_command=session_command,
            file_system_id=file_system.file_system_id,
            adjuster=adjuster.function,
            dead_letters=dead_letters,
            log_groups=[node_log, adjuster.function.log_group],
            alarms=self.alarms.alarms,
            has_gpus=has_gpus,
            has_fallbacks=has_fallbacks,
        )
