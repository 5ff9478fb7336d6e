"""What the programs of a cluster meet at: state item, queues, topic and the stack's wait."""

from aws_cdk import CfnWaitCondition, CfnWaitConditionHandle, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from deeplearning_contract.cluster_state import TABLE_KEY

_LONG_POLL = Duration.seconds(20)


class Coordination(Construct):
    """
    Meeting points of a cluster, as `docs/architecture.md` describes them.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        encryption_key: Encrypts all of it.

    Attributes:
        state_table: Holds the state item, the one truth.
        master_queue: The adjuster rings the master.
        worker_queue: The master rings all workers.
        report_queue: The workers tell the master.
        topic: Carries the events of the groups to the adjuster.
        signal_url: Presigned URL that ends the stack's wait; a secret of the adjuster and the master.
    """

    def __init__(self, scope: Construct, construct_id: str, *, encryption_key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        self.state_table = dynamodb.Table(
            self,
            "StateTable",
            partition_key=dynamodb.Attribute(name=TABLE_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            # The item says nothing once the cluster is gone.
            removal_policy=RemovalPolicy.DESTROY,
        )
        # Messages are doorbells and reports of one formation, so none needs to outlive it.
        self.master_queue = self._make_queue("MasterQueue", Duration.hours(1), Duration.seconds(30))
        # Every worker must see every ring, so a ring is never hidden and expires by itself.
        self.worker_queue = self._make_queue("WorkerQueue", Duration.minutes(5), Duration.seconds(0))
        self.report_queue = self._make_queue("ReportQueue", Duration.days(1), Duration.seconds(30))
        self.topic = sns.Topic(self, "LaunchEvents")
        self._handle = CfnWaitConditionHandle(self, "FormationHandle")
        self.signal_url = self._handle.ref

    def wait_for_formation(self, timeout: Duration, *dependencies: IDependable) -> CfnWaitCondition:
        """
        Make the stack's creation wait for the cluster's own verdict.

        Args:
            timeout: How long to wait before the creation fails.
            dependencies: What the nodes need; the clock starts when all of it is there.
        """
        condition = CfnWaitCondition(
            self, "Formation", count=1, handle=self._handle.ref, timeout=str(int(timeout.to_seconds()))
        )
        condition.node.add_dependency(*dependencies)
        return condition

    def _make_queue(self, construct_id: str, retention: Duration, visibility: Duration) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            retention_period=retention,
            visibility_timeout=visibility,
            receive_message_wait_time=_LONG_POLL,
            removal_policy=RemovalPolicy.DESTROY,
        )


def name_cluster(scope: Construct) -> str:
    """
    Name a cluster: unique among live stacks of a region, and the same at every synth.

    Args:
        scope: The construct that is the cluster.
    """
    return f"{Stack.of(scope).stack_name}-{scope.node.addr[-8:]}"
