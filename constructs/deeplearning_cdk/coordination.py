"""What the programs of a cluster meet at: state item, queues, topic and the stack's wait."""

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
"""Receipts of a message that nobody deletes, half a minute apart: ten minutes in which each kills its master."""
_LONG_POLL = Duration.seconds(20)
_DATA_KEY_LIFE = Duration.hours(1)
"""Time for which SQS calls KMS no more than once for each caller."""


class Coordination(Construct):
    """
    Meeting points of a cluster, as `docs/architecture.md` describes them, encrypted and reached over TLS only.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        encryption_key: Encrypts all of it.

    Attributes:
        state_table: Holds the state item, the one truth.
        dead_letters: What nobody could handle: messages that killed the master, events that a function failed at, and
            what topics and rules could not deliver.
        master_queue: The adjuster rings the master.
        worker_queue: The master rings all workers.
        report_queue: The workers tell the master.
        topic: Carries the events of the groups to the adjuster.
        signal_url: Presigned URL that ends the stack's wait; a secret of the adjuster and the master.
        readiness: What must exist before the first node.
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
            # The item says nothing once the cluster is gone.
            removal_policy=RemovalPolicy.DESTROY,
        )
        # Somebody may look days later why a message could not be handled.
        self.dead_letters = self._make_queue("DeadLetters", Duration.days(14), Duration.seconds(30))
        redrive = sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=MOST_RECEIPTS)
        # Messages are doorbells and reports of one formation, so none needs to outlive it.
        self.master_queue = self._make_queue("MasterQueue", Duration.hours(1), Duration.seconds(30), redrive)
        # Every worker must see every ring, so a ring is never hidden and expires by itself.
        self.worker_queue = self._make_queue("WorkerQueue", Duration.minutes(5), Duration.seconds(0))
        acknowledge(self.worker_queue, "worker-doorbell-without-redrive")
        self.report_queue = self._make_queue("ReportQueue", Duration.days(1), Duration.seconds(30), redrive)
        self.topic = self._make_topic()
        self._handle = CfnWaitConditionHandle(self, "FormationHandle")
        self.signal_url = self._handle.ref
        readiness = DependencyGroup()
        queues = (self.dead_letters, self.master_queue, self.worker_queue, self.report_queue)
        # The groups name the topic anyway, but not its policy.
        readiness.add(self.state_table, *queues, self.topic.node.find_child("Policy"))
        self.readiness: IDependable = readiness

    def admit_sender(self, queue: sqs.Queue, sender: iam.IRole) -> None:
        """
        Let nobody but a role send to a queue, whatever else the account's policies allow.

        Sending alone is refused to others, so that no administrator is locked out.

        Args:
            queue: One of these queues.
            sender: Whom the queue is for.
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
        Make the topic to which Auto Scaling alone publishes, with its service-linked role.

        That role may publish anywhere by a policy of its own (SNS developer guide, "Enable compatibility between event
        sources and encrypted topics"; AWS managed policy AutoScalingServiceRolePolicy), so that this one only refuses:
        a caller with credentials of its own whatever its rights are, but not what AWS itself does, because the test of
        a new notification may come in the name of who deploys.
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
    Name a cluster: unique among live stacks of a region, and the same at every synth.

    Args:
        scope: The construct that is the cluster.
    """
    return f"{Stack.of(scope).stack_name}-{scope.node.addr[-8:]}"
