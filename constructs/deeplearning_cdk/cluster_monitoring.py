"""What a user sees of a cluster: its dashboard, its alarms and the topic that carries them."""

from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from deeplearning_cdk.capacity_adjuster import CapacityAdjuster
from deeplearning_cdk.cluster_plan import ClusterPlan
from deeplearning_cdk.coordination import Coordination
from deeplearning_cdk.shared_file_system import SharedFileSystem


class ClusterMonitoring(Construct):
    """
    Dashboard and alarms of a cluster.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster's name, the dimension of its metrics.
        plan: What was chosen, with the topic of the user's alarms and the spending.
        coordination: Whose dead letters are watched.
        adjuster: Whose errors are watched.
        file_system: Whose throughput is shown.
        encryption_key: Encrypts a topic of the cluster's own.

    Attributes:
        alarm_topic: Where alarms go.
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
        file_system: SharedFileSystem,
        encryption_key: kms.IKey,
    ) -> None:
        super().__init__(scope, construct_id)
        self._cluster = cluster
        self.alarm_topic: sns.ITopic = plan.alarm_topic or sns.Topic(self, "Alarms", master_key=encryption_key)
