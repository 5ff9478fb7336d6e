"""Training jobs of SageMaker: network, file system, image, role and buckets with which `submit` starts them."""

import hashlib
from collections.abc import Sequence

import jsii
from aws_cdk import Annotations, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.catalog.instance_catalog import NodeInstanceType
from deeplearning_cdk.coordination.coordination import name_cluster
from deeplearning_cdk.coordination.grants import grant_training_jobs
from deeplearning_cdk.coordination.messages import AlarmTopic
from deeplearning_cdk.coordination.node_permissions import ec2_arn, pull_from_statements, pull_statements
from deeplearning_cdk.coordination.payload import pack_member
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.interfaces import describe_hardware
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.member_settings import CONTAINER_USER, describe_container
from deeplearning_cdk.nodes.programs import FileAsset
from deeplearning_cdk.nodes.submission import JobSubmission, read_sources_statement
from deeplearning_cdk.nodes.training_image import TrainingImage
from deeplearning_cdk.nodes.values import Software
from deeplearning_cdk.props.check import checked, show_value
from deeplearning_cdk.props.tags import tag_costs
from deeplearning_cdk.sagemaker.alarms import TrainingJobAlarm
from deeplearning_cdk.sagemaker.notebook import TrainingNotebook
from deeplearning_cdk.sagemaker.plan import (
    DEFAULT_INSTANCE_TYPE,
    DEFAULT_RUN,
    ImageUri,
    InstanceCount,
    InstanceVolume,
    PendingTime,
    RunTime,
    WarmTime,
    plan_training,
)
from deeplearning_cdk.sagemaker.roles import (
    agent_statements,
    interface_statements,
    log_statements,
    make_execution_role,
    model_statements,
    removal_statements,
)
from deeplearning_cdk.security.encryption import ClusterEncryption, EncryptionKey
from deeplearning_cdk.security.node_roles import attach_rights
from deeplearning_cdk.storage.buckets import make_model_bucket
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_cdk.storage.values import Storage
from deeplearning_cdk.warnings import KEPT_WARM, judge_region
from deeplearning_contract.jobs.submission import FileSystemFolder, TrainingSettings
from deeplearning_contract.jobs.training_job import SHARED_FOLDER, TYPE_PREFIX
from deeplearning_contract.setting_parts import FileSystemSettings
from deeplearning_contract.settings import NodeSettings

_MODEL_PREFIX = "models/"


@jsii.implements(iam.IGrantable, ec2.IConnectable)
class SageMakerTraining(Construct):
    """
    Training jobs of SageMaker: each job is one managed training job of as many containers as it has members.

    `deeplearning-cdk submit` starts jobs; nothing runs, and no instance costs, between them. The containers mount the
    shared file system, meet on it, and train over SSH; the first container is rank 0.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        instance_type: Instance type of every container, by EC2's or SageMaker's name. Default: g5.12xlarge.
        members: Instances of a job that names none. Default: 2.
        image: URI of the containers' image in Amazon ECR, with Python 3.10 or newer, OpenSSH's server and client, and
            iproute2. Default: an image with `software.environment`, which is built at deployment.
        volume_size: Size of the volume of each instance; a number is GiB. Default: 100 GiB; types with NVMe disks have
            only these.
        max_run: Longest run of a job, which a job may shorten. Default: 1 day.
        spot_wait: Use managed spot capacity; longest time of a job with all its waits. Default: on-demand capacity.
        max_pending: Longest wait of a job for accelerated instances. Default: SageMaker's own limit.
        keep_warm: Time for which the instances of a job wait for the next one, at their full price. Default: they end
            with the job.
        notebook: Create a notebook instance with the example notebook; it is billed until somebody stops it.
            Default: there is none.
        network: VPC, zone and subnet. Default: `Network()`, a new VPC with a NAT gateway.
        software: Environment of jobs. Default: `Software()`, Horovod.
        storage: Shared file system, FSx for Lustre, and data in S3. Default: `Storage()`, a new EFS file system.
        encryption_key: KMS key of volumes, models, file systems and backups. Default: a key of the stack's own.
        alarm_topic: Topic that receives the failures of jobs. Default: a topic of the stack's own.

    Attributes:
        cluster_name: Name of the whole, the value of the tag `deeplearning:cluster` of its resources and jobs.
        encryption: The key.
        network: VPC, subnet and security group of the containers.
        storage: The file systems.
        file_system: The shared file system.
        model_bucket: Bucket of the models that SageMaker writes.
        image_uri: Image of the containers.
        role: Role of SageMaker and of the containers.
        alarm: Topic and rule of failed jobs.
        submission: Where jobs are submitted.
        notebook: The notebook instance; None without one.

    Raises:
        ValueError: A choice cannot work; the message names the prop, the rule and a way out.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        instance_type: NodeInstanceType = DEFAULT_INSTANCE_TYPE,
        members: InstanceCount = 2,
        image: ImageUri | None = None,
        volume_size: InstanceVolume | None = None,
        max_run: RunTime = DEFAULT_RUN,
        spot_wait: RunTime | None = None,
        max_pending: PendingTime | None = None,
        keep_warm: WarmTime | None = None,
        notebook: bool = False,
        network: Network = Network(),
        software: Software = Software(),
        storage: Storage = Storage(),
        encryption_key: EncryptionKey | None = None,
        alarm_topic: AlarmTopic | None = None,
    ) -> None:
        self._plan = plan_training(
            instance_type=instance_type,
            image=image,
            volume_size=volume_size,
            max_run=max_run,
            spot_wait=spot_wait,
            max_pending=max_pending,
            keep_warm=keep_warm,
            network=network,
            software=software,
            storage=storage,
        )
        super().__init__(scope, construct_id)
        _add_warnings(self, self._plan.facts.name, keep_warm)
        self.cluster_name, self._name_prefix = tag_costs(self, name_cluster(self)), f"{_digest_path(self)}-"
        self.encryption = ClusterEncryption(self, "Encryption", key=encryption_key, is_for_groups=False)
        self.network = ClusterNetwork(self, "Network", network, log_key=self.encryption.log_key)
        self.storage = ClusterStorage(
            self, storage, mode="nfs4", network=self.network, state_table=None, encryption_key=self.encryption.key
        )
        self.file_system = self.storage.file_system
        self.model_bucket = make_model_bucket(self, "ModelBucket", self.encryption.key)
        self._data, self._groups = tuple(storage.data), [self.network.security_group, *network.security_groups]
        self._agent = FileAsset(self, "Agent", pack_member(self._describe_member(storage.mount_point)))
        self.image_uri, pull = self._choose_image(image)
        self.role = self._make_role(pull)
        self._keep_until_removal(has_own_network=network.vpc is None)
        self.alarm = TrainingJobAlarm(
            self,
            "Alarm",
            name_prefix=self._name_prefix,
            topic=alarm_topic,
            encryption_key=self.encryption.key,
        )
        self._settings = self._describe_jobs(members)
        self.submission = self._make_submission()
        self.notebook = self._make_notebook() if notebook else None

    @property
    def connections(self) -> ec2.Connections:
        """Connections of every container."""
        return self.network.connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """Role of all containers: `bucket.grant_read(training)` applies to each."""
        return self.role

    def grant_submit(self, grantee: iam.IGrantable) -> iam.Grant:
        """
        Allow a grantee to submit, list, show and stop jobs with `deeplearning-cdk`.

        It includes all rights of the role of the containers, because a submitter chooses what they run.
        """
        return grant_training_jobs(grantee, self.cluster_name, self._settings, self.submission.bucket)

    def _describe_member(self, mount_point: str) -> NodeSettings:
        """Return the settings of a container, which contain no tokens; SageMaker brings the data as channels."""
        return describe_container(
            self._plan.facts,
            file_system=FileSystemSettings("channel", SHARED_FOLDER, "", mount_point),
            data=self._data,
            environment=self._plan.environment,
        )

    def _choose_image(self, image: str | None) -> tuple[str, list[iam.PolicyStatement]]:
        """Return the image of the containers, and the permissions to pull it."""
        if image is not None:
            return image, pull_statements(image)
        built = TrainingImage(self, "Image", environment=self._plan.environment, instance_type=self._plan.facts)
        return built.image_uri, pull_from_statements(built.asset.repository.repository_arn)

    def _make_role(self, pull: Sequence[iam.PolicyStatement]) -> iam.Role:
        read = [source for source in self._data if source.target != "lustre"]
        role = make_execution_role(
            self,
            "Role",
            [
                *agent_statements(self.cluster_name, self._agent.settings.bucket),
                read_sources_statement(self.cluster_name, self._agent.settings.bucket),
                *(right for source in read for right in source.read_statements()),
                *pull,
                *interface_statements(self.network.worker_subnet, self._groups),
                *model_statements(
                    self.model_bucket,
                    _MODEL_PREFIX,
                    self.encryption.key_arn,
                    has_volume=self._plan.volume_gibibytes != 0,
                ),
                *log_statements(self._name_prefix),
            ],
            description="Training jobs of a deep-learning stack on SageMaker",
        )
        for source in read:
            source.grant_key(role)
        return role

    def _keep_until_removal(self, *, has_own_network: bool) -> None:
        """
        Let the role remove interfaces until the network is deleted, because SageMaker removes them after a job.

        The rights name nothing that is deleted after them: the VPC where the stack has its own, else the subnet.
        """
        vpc, subnet = self.network.vpc, self.network.worker_subnet
        limits = ("ec2:Vpc", ec2_arn("vpc", vpc.vpc_id)), ("ec2:Subnet", ec2_arn("subnet", subnet.subnet_id))
        statements = removal_statements(*limits[0 if has_own_network else 1])
        rights = attach_rights(self.role, statements, Construct(self, "Removal"))
        self.network.security_group.node.add_dependency(rights)
        if has_own_network:
            subnet.node.add_dependency(rights)

    def _describe_jobs(self, members: int) -> TrainingSettings:
        plan, lustre = self._plan, self.storage.lustre
        return TrainingSettings(
            name_prefix=self._name_prefix,
            role_arn=self.role.role_arn,
            image=self.image_uri,
            instance_type=f"{TYPE_PREFIX}{plan.facts.name}",
            gpu_count=describe_hardware(plan.facts).gpu_count,
            members=members,
            volume_gibibytes=plan.volume_gibibytes,
            subnets=(self.network.worker_subnet.subnet_id,),
            security_groups=tuple(group.security_group_id for group in self._groups),
            shared=FileSystemFolder(self.file_system.file_system_id, "EFS", "/"),
            output=f"s3://{self.model_bucket.bucket_name}/{_MODEL_PREFIX}",
            key_arn=self.encryption.key_arn,
            agent=self._agent.settings,
            max_seconds=plan.max_seconds,
            max_wait_seconds=plan.max_wait_seconds,
            max_pending_seconds=plan.max_pending_seconds,
            keep_alive_seconds=plan.keep_alive_seconds,
            data=tuple(source.settings for source in self._data),
            lustre=FileSystemFolder(lustre.file_system_id, "FSxLustre", f"/{lustre.mount_name}") if lustre else None,
        )

    def _make_submission(self) -> JobSubmission:
        submission = JobSubmission(
            self,
            "Submission",
            self.cluster_name,
            login_user=CONTAINER_USER,
            bucket=self._agent.settings.bucket,
            platform="sagemaker",
            training=self._settings,
        )
        # A job that is submitted as soon as the document exists finds all that it needs.
        submission.node.add_dependency(
            self.network.connectivity, *self.storage.readiness, self.model_bucket, self.role, self.alarm
        )
        return submission

    def _make_notebook(self) -> TrainingNotebook:
        notebook = TrainingNotebook(
            self,
            "Notebook",
            name_prefix=self._name_prefix,
            network=self.network,
            key_arn=self.encryption.key_arn,
            models=self.model_bucket,
            model_prefix=_MODEL_PREFIX,
        )
        self.grant_submit(notebook.role)
        return notebook


def _digest_path(scope: Construct) -> str:
    """Return 8 hex digits that are unique among the live stacks of a region, and the same at every synth."""
    stack = Stack.of(scope)
    while stack.nested_stack_parent is not None:  # The name of a nested stack is a token.
        stack = stack.nested_stack_parent
    return hashlib.sha256(f"{stack.stack_name}/{scope.node.path}".encode()).hexdigest()[:8]


def _add_warnings(scope: Construct, instance_type: str, keep_warm: Duration | None) -> None:
    judge_region(scope)
    if keep_warm is not None:
        Annotations.of(scope).add_warning_v2(
            KEPT_WARM,
            f"each job keeps its {instance_type} for {show_value(keep_warm)} after its end, at the full price; leave "
            "keep_warm out unless jobs follow each other",
        )
