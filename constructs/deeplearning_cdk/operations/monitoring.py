"""What a user sees of a cluster: its dashboard, its alarms and the topic that carries them."""

from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from deeplearning_cdk.capacity.adjuster import CapacityAdjuster
from deeplearning_cdk.cluster_plan import ClusterPlan
from deeplearning_cdk.coordination import Coordination
from deeplearning_cdk.operations.alarm_topic import admit_publishers, make_topic
from deeplearning_cdk.operations.alarms import ClusterAlarms
from deeplearning_cdk.operations.budget import BudgetGuard
from deeplearning_cdk.operations.dashboard import ClusterDashboard, Watched
from deeplearning_cdk.operations.event_rule import ClusterEventRule
from deeplearning_cdk.operations.metrics import ClusterMetrics
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem


class ClusterMonitoring(ClusterMetrics):
    """
    Dashboard, alarms and budget of a cluster.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster's name, the dimension of its metrics.
        plan: What was chosen, with the topic of the user's alarms and the spending.
        coordination: Whose dead letters are watched, and keep what rules and topics cannot deliver.
        adjuster: Whose errors are watched, and who stops the cluster when its budget is used up.
        node_log: What the nodes log.
        file_system: Whose throughput is shown.
        encryption_key: Encrypts topics of the cluster's own.

    Attributes:
        alarm_topic: Where alarms go, and what went wrong.
        alarms: The alarms.
        budget: The budget; None without `monthly_budget_usd`.
        dashboard: The dashboard.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: str,
        plan: ClusterPlan,
        coordination: Coordination,
        adjuster: CapacityAdjuster,
        node_log: logs.ILogGroup,
        file_system: SharedFileSystem,
        encryption_key: kms.IKey,
    ) -> None:
        super().__init__(scope, construct_id)
        self._cluster = cluster
        has_gpus = _has_gpus(plan)
        self.alarm_topic: sns.ITopic = plan.alarm_topic or make_topic(self, "Alarms", encryption_key=encryption_key)
        admit_publishers(self, self.alarm_topic)
        self.alarms = ClusterAlarms(
            self,
            "Watch",
            metrics=self,
            dead_letters=coordination.dead_letters,
            adjuster_errors=adjuster.alarm,
            setup_seconds=plan.setup_seconds,
            has_gpus=has_gpus,
            topic=self.alarm_topic,
        )
        ClusterEventRule(
            self, "Events", cluster=cluster, topic=self.alarm_topic, dead_letters=coordination.dead_letters
        )
        self.budget = self._guard_budget(plan, adjuster, coordination, encryption_key)
        self.dashboard = ClusterDashboard(
            self,
            "Dashboard",
            metrics=self,
            watched=Watched(
                cluster=cluster,
                file_system_id=file_system.file_system_id,
                adjuster=adjuster.function,
                dead_letters=coordination.dead_letters,
                log_groups=[node_log, adjuster.function.log_group],
                alarms=self.alarms.alarms,
                has_gpus=has_gpus,
            ),
        )

    def _guard_budget(
        self, plan: ClusterPlan, adjuster: CapacityAdjuster, coordination: Coordination, encryption_key: kms.IKey
    ) -> BudgetGuard | None:
        spending = plan.spending
        if spending.monthly_budget_usd is None:
            return None
        guard = BudgetGuard(
            self,
            "Budget",
            cluster=self._cluster,
            monthly_usd=spending.monthly_budget_usd,
            alarm_topic=self.alarm_topic,
            stopped_by=adjuster.function if spending.budget_stops else None,
            dead_letters=coordination.dead_letters,
            encryption_key=encryption_key,
        )
        if guard.used_up is not None:
            self.alarms.watch_budget(guard.used_up)
        return guard


def _has_gpus(plan: ClusterPlan) -> bool:
    """Tell whether any node has GPUs that an agent can ask how busy they are, which are NVIDIA's."""
    kinds = (plan.master, plan.workers) if plan.capacity.maximum else (plan.master,)
    return any(kind.gpu_count > 0 for kind in kinds)
