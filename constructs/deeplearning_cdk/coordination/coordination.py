"""Coordination of a cluster: state table, queues, topic and the wait condition of the stack."""

from aws_cdk import CfnWaitCondition, CfnWaitConditionHandle, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct, DependencyGroup, IDependable

from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_cdk.security.encryption import scaling_role_arn
from deeplearning_contract.cluster_state import TABLE_KEY

MOST_RECEIPTS = 20
"""Receives before a message becomes a dead letter, 30 seconds apart: it can stop the master for 10 minutes."""
_LONG_POLL = Duration.seconds(20)
_DATA_KEY_LIFE = Duration.hours(1)
"""Period in which SQS calls KMS at most once for each caller."""


class Coordination(Construct):
    """
    State table, queues and topic of a cluster, which are encrypted and accept TLS only; see `docs/architecture.md`.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        encryption_key: KMS key for table, queues and topic.

    Attributes:
        state_table: Table with the state record, the single source of truth.
        dead_letters: Queue for messages that stopped the master, events at which a function failed, and messages that
            topics and rules could not deliver.
        master_queue: Queue of notifications from the adjuster to the master.
        worker_queue: Queue of notifications from the master to all workers.
        report_queue: Queue of reports from the workers to the master.
        topic: Topic for the events of the groups, with the adjuster as its subscriber.
        signal_url: Presigned URL of the stack's wait condition; only the adjuster and the master may read it.
        readiness: Dependencies of the first node.
    """

    def __init__(self, scope: Construct, construct_id: str, *, encryption_key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        self._key = encryption_key
        self.state_table = dynamodb.Table(
            self,
            "StateTable",
            partition_key=dynamodb.Attribute(name=TABLE_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED,
            encryption_key=encryption_key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            # The record is of no use once the cluster is deleted.
            removal_policy=RemovalPolicy.DESTROY,
        )
        # 14 days, so that a message can be examined days after it failed.
        self.dead_letters = self._make_queue("DeadLetters", Duration.days(14), Duration.seconds(30))
        redrive = sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=MOST_RECEIPTS)
        # Messages are notifications and reports of one formation, and need not outlive it.
        self.master_queue = self._make_queue("MasterQueue", Duration.hours(1), Duration.seconds(30), redrive)
        # Every worker must receive every notification, so that none is hidden, and each expires by itself.
        self.worker_queue = self._make_queue("WorkerQueue", Duration.minutes(5), Duration.seconds(0))
        acknowledge(self.worker_queue, "queue-without-redrive")
        self.report_queue = self._make_queue("ReportQueue", Duration.days(1), Duration.seconds(30), redrive)
        self.topic = self._make_topic()
        self._handle = CfnWaitConditionHandle(self, "FormationHandle")
        self.signal_url = self._handle.ref
        readiness = DependencyGroup()
        queues = (self.dead_letters, self.master_queue, self.worker_queue, self.report_queue)
        # The groups refer to the topic, but not to its policy.
        readiness.add(self.state_table, *queues, self.topic.node.find_child("Policy"))
        self.readiness: IDependable = readiness

    def allow_only_sender(self, queue: sqs.Queue, sender: iam.IRole) -> None:
        """
        Deny `sqs:SendMessage` on a queue to everyone but a role, whatever other policies of the account allow.

        Only sending is denied, so that no administrator is locked out.
        """
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid="OneRoleSends",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["sqs:SendMessage"],
                resources=[queue.queue_arn],
                conditions={"ArnNotEquals": {"aws:PrincipalArn": sender.role_arn}},
            )
        )

    def wait_for_formation(self, timeout: Duration, *dependencies: IDependable) -> CfnWaitCondition:
        """
        Make the stack's creation wait until the cluster signals success or failure, or until a timeout fails it.

        The timeout starts when all dependencies, the same as those of the nodes, have been created.
        """
        condition = CfnWaitCondition(
            self, "Formation", count=1, handle=self._handle.ref, timeout=str(int(timeout.to_seconds()))
        )
        condition.node.add_dependency(*dependencies)
        return condition

    def _make_queue(
        self, construct_id: str, retention: Duration, visibility: Duration, redrive: sqs.DeadLetterQueue | None = None
    ) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            encryption=sqs.QueueEncryption.KMS,
            encryption_master_key=self._key,
            data_key_reuse=_DATA_KEY_LIFE,
            enforce_ssl=True,
            dead_letter_queue=redrive,
            retention_period=retention,
            visibility_timeout=visibility,
            receive_message_wait_time=_LONG_POLL,
            removal_policy=RemovalPolicy.DESTROY,
        )

    def _make_topic(self) -> sns.Topic:
        """
        Create the topic to which only Auto Scaling publishes, with its service-linked role.

        That role's own policy allows it to publish to any topic (SNS developer guide, "Enable compatibility between
        event sources and encrypted topics"; AWS managed policy AutoScalingServiceRolePolicy). The topic's policy
        therefore only denies: every caller with credentials of its own, whatever its rights, but no call by AWS itself,
        because the test of a new notification can be made in the name of the deploying principal.
        """
        topic = sns.Topic(self, "LaunchEvents", master_key=self._key, enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="NobodyElsePublishes",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={
                    "ArnNotEquals": {"aws:PrincipalArn": scaling_role_arn()},
                    "BoolIfExists": {"aws:PrincipalIsAWSService": "false", "aws:ViaAWSService": "false"},
                },
            )
        )
        return topic


def name_cluster(scope: Construct) -> str:
    """
    Return the name of a cluster: unique among live stacks of a region, the same at every synth.
    """
    return f"{Stack.of(scope).stack_name}-{scope.node.addr[-8:]}"
