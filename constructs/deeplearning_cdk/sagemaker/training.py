"""Training jobs of SageMaker: network, file system, image, role and bucket with which `submit` starts them."""

from typing import Any

import jsii
from aws_cdk import Annotations, Duration, Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.catalog.instance_catalog import NodeInstanceType
from deeplearning_cdk.coordination.coordination import name_cluster
from deeplearning_cdk.coordination.grants import grant_training_jobs
from deeplearning_cdk.coordination.messages import AlarmTopic
from deeplearning_cdk.coordination.node_permissions import pull_statements, read_statement
from deeplearning_cdk.coordination.payload import pack_member
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.interfaces import describe_hardware
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.member_settings import describe_member
from deeplearning_cdk.nodes.programs import FileAsset
from deeplearning_cdk.nodes.submission import JobSubmission, read_sources_statement
from deeplearning_cdk.nodes.training_image import TrainingImage
from deeplearning_cdk.nodes.values import Software
from deeplearning_cdk.operations.job_alarms import JobAlarms
from deeplearning_cdk.props.check import checked
from deeplearning_cdk.props.tags import tag_costs
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID
from deeplearning_cdk.sagemaker.plan import (
    DEFAULT_INSTANCE_TYPE,
    DEFAULT_RUN,
    ImageUri,
    MemberCount,
    PendingTime,
    RunTime,
    TrainingPlan,
    VolumeSize,
    WarmTime,
    plan_training,
)
from deeplearning_cdk.sagemaker.roles import SERVICE, submit_statements, training_statements
from deeplearning_cdk.security.encryption import ClusterEncryption, EncryptionKey
from deeplearning_cdk.security.node_roles import attach_rights
from deeplearning_cdk.storage.buckets import make_model_bucket
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_cdk.storage.lustre import LustreFileSystem
from deeplearning_cdk.storage.values import Storage
from deeplearning_cdk.warnings import judge_region
from deeplearning_contract.jobs.submission import FileSystemFolder, TrainingSettings
from deeplearning_contract.jobs.training_job import SHARED_FOLDER, TYPE_PREFIX
from deeplearning_contract.setting_parts import DataSettings, EnvironmentSettings, FileSystemSettings

KEPT_WARM = "deeplearning_cdk:instancesKeptWarm"
MODEL_PREFIX = "models/"
_LOGIN_USER = "root"
_SETUP_SECONDS = 15 * 60
"""Time for the containers of a job to meet."""


@jsii.implements(iam.IGrantable, ec2.IConnectable)
class SageMakerTraining(Construct):
    """
    What training jobs on SageMaker need, without an instance of its own: `deeplearning-cdk submit` creates each job.

    The containers of a job form a cluster on the shared file system, and the first one starts the ranks.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        instance_type: Instance type of every container, by EC2's name or SageMaker's. Default: g5.12xlarge.
        members: Instances of a job that names no number. Default: 2.
        image: URI of an image with the software of jobs, an SSH server and client, iproute2 and Python 3.10 or newer.
            Default: a `TrainingImage` with `software.environment`, built at deployment.
        volume_size: Size of each instance's volume; a number is GiB. Default: 100 GiB; none for a type with an instance
            store.
        max_run: Longest run of a job. Default: 1 day.
        spot_wait: Longest time of a job on spot capacity with all its waits, the run included. Default: none; jobs run
            on demand.
        keep_warm: Time for which instances wait for the next job, at the price of a run. Default: none.
        max_pending: Longest wait of a job for capacity. Default: SageMaker's own limit.
        network: VPC, zone and subnet. Default: `Network()`, a new VPC with a NAT gateway.
        software: Environment of jobs. Default: `Software()`, Horovod.
        storage: Shared file system, FSx for Lustre, and data in S3. Default: `Storage()`, a new EFS file system.
        encryption_key: KMS key of volumes, models, file systems and backups. Default: a key of the stack's own.
        alarm_topic: Topic that receives the failures of jobs. Default: a topic of the stack's own.

    Attributes:
        cluster_name: Name of the stack's jobs, the value of their tag `deeplearning:cluster`.
        encryption: The key.
        network: VPC, subnet and security group of the containers.
        storage: The file systems.
        file_system: The shared file system.
        model_bucket: Bucket of the models.
        role: Execution role of the jobs.
        image_uri: Image of the containers.
        alarms: Topic and rule of failures.
        submission: Where jobs are submitted.

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
        members: MemberCount = 2,
        image: ImageUri | None = None,
        volume_size: VolumeSize | None = None,
        max_run: RunTime = DEFAULT_RUN,
        spot_wait: RunTime | None = None,
        keep_warm: WarmTime | None = None,
        max_pending: PendingTime | None = None,
        network: Network = Network(),
        software: Software = Software(),
        storage: Storage = Storage(),
        encryption_key: EncryptionKey | None = None,
        alarm_topic: AlarmTopic | None = None,
    ) -> None:
        plan = plan_training(
            instance_type=instance_type,
            image=image,
            volume_size=volume_size,
            max_run=max_run,
            spot_wait=spot_wait,
            keep_warm=keep_warm,
            max_pending=max_pending,
            network=network,
            software=software,
            storage=storage,
        )
        super().__init__(scope, construct_id)
        _add_warnings(self, plan, keep_warm)
        self.cluster_name = tag_costs(self, name_cluster(self))
        self._name_prefix = f"{self.node.addr[-8:]}-"
        self.encryption = ClusterEncryption(self, "Encryption", key=encryption_key, is_for_groups=False)
        self.network = ClusterNetwork(self, "Network", network, log_key=self.encryption.log_key)
        self.storage = ClusterStorage(
            self,
            storage,
            # A channel has neither an access point nor IAM, which a file system of mode `efs` requires.
            mode="nfs4",
            network=self.network,
            state_table=None,
            encryption_key=self.encryption.key,
        )
        self.file_system = self.storage.file_system
        self.model_bucket = make_model_bucket(self, "ModelBucket", self.encryption.key)
        self._groups = [self.network.security_group, *network.security_groups]
        self._agent = FileAsset(self, "Agent", pack_member(_describe_container(plan, storage)).path)
        self.role = self._make_role(plan, storage)
        self.image_uri = self._choose_image(image, plan)
        self.alarms = JobAlarms(
            self,
            "Alarms",
            **_describe_failures(self._name_prefix),
            topic=alarm_topic,
            encryption_key=self.encryption.key,
        )
        limits = {
            "max_seconds": max_run,
            "max_wait_seconds": spot_wait,
            "max_pending_seconds": max_pending,
            "keep_alive_seconds": keep_warm,
        }
        seconds = {name: int(limit.to_seconds()) for name, limit in limits.items() if limit is not None}
        self.submission = self._make_submission(plan, members, storage, seconds)

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

        A job runs programs of the grantee with the execution role, in this stack's network.
        """
        statements = submit_statements(
            name_prefix=self._name_prefix,
            role_arn=self.role.role_arn,
            subnet_id=self.network.worker_subnet.subnet_id,
            groups=self._list_group_ids(),
            key_arn=self.encryption.key_arn,
        )
        return grant_training_jobs(grantee, self.cluster_name, self.submission.bucket, statements)

    def _list_group_ids(self) -> list[str]:
        return [group.security_group_id for group in self._groups]

    def _make_role(self, plan: TrainingPlan, storage: Storage) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            # Against use by jobs of other accounts (developer guide, "Cross-Service Confused Deputy Prevention").
            assumed_by=iam.ServicePrincipal(SERVICE, conditions={"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}}),
            description="Training jobs of a deep-learning stack on SageMaker",
        )
        agent = self._agent
        data = [source for source in storage.data if source.target != "lustre"]
        list_agent = iam.PolicyStatement(
            actions=["s3:ListBucket"],
            resources=[agent.asset.bucket.bucket_arn],
            conditions={"StringLike": {"s3:prefix": agent.settings.key}},
        )
        rights = [
            read_statement([agent.asset]),
            list_agent,
            read_sources_statement(self.cluster_name, agent.settings.bucket),
            *(right for source in data for right in source.read_statements()),
            *training_statements(
                self.model_bucket,
                MODEL_PREFIX,
                name_prefix=self._name_prefix,
                network=self.network,
                groups=self._groups,
                key_arn=self.encryption.key_arn,
                has_volumes=plan.gibibytes > 0,
            ),
        ]
        self._policy = attach_rights(role, rights)
        for source in data:
            source.grant_key(role)
        return role

    def _choose_image(self, image: str | None, plan: TrainingPlan) -> str:
        if image is not None:
            if statements := pull_statements(image):
                self._policy.add_statements(*statements)
            return image
        built = TrainingImage(self, "Image", environment=plan.environment, instance_type=plan.facts)
        built.asset.repository.grant_pull(self._policy)
        return built.image_uri

    def _make_submission(
        self, plan: TrainingPlan, members: int, storage: Storage, seconds: dict[str, int]
    ) -> JobSubmission:
        training = TrainingSettings(
            name_prefix=self._name_prefix,
            role_arn=self.role.role_arn,
            image=self.image_uri,
            instance_type=f"{TYPE_PREFIX}{plan.facts.name}",
            gpu_count=describe_hardware(plan.facts).gpu_count,
            members=members,
            volume_gibibytes=plan.gibibytes,
            subnets=(self.network.worker_subnet.subnet_id,),
            security_groups=tuple(self._list_group_ids()),
            shared=FileSystemFolder(self.file_system.file_system_id, "EFS", "/"),
            output=Fn.join("", ["s3://", self.model_bucket.bucket_name, "/", MODEL_PREFIX]),
            key_arn=self.encryption.key_arn,
            agent=self._agent.settings,
            data=tuple(source.settings for source in storage.data),
            lustre=_describe_lustre(self.storage.lustre) if self.storage.lustre else None,
            **seconds,
        )
        submission = JobSubmission(
            self,
            "Submission",
            self.cluster_name,
            login_user=_LOGIN_USER,
            bucket=self._agent.settings.bucket,
            platform="sagemaker",
            training=training,
        )
        # A job that is submitted as soon as the document exists finds all that it needs.
        submission.node.add_dependency(self.network.connectivity, self.role, *self.storage.readiness)
        return submission


def _describe_container(plan: TrainingPlan, storage: Storage) -> dict[str, Any]:
    """Return the settings of the containers; those that contain tokens are in the request of a job."""
    chosen = plan.environment
    settings = describe_member(
        plan.facts,
        cluster="",
        region="",
        login_user=_LOGIN_USER,
        file_system=FileSystemSettings("channel", SHARED_FOLDER, "", storage.mount_point),
        packages={},
        setup_seconds=_SETUP_SECONDS,
        data=tuple(DataSettings(source.name, "", "", source.target) for source in storage.data),
        environment=(
            EnvironmentSettings(chosen.kind, horovod=chosen.horovod, framework=chosen.framework) if chosen else None
        ),
    )
    return settings.to_document()


def _describe_lustre(lustre: LustreFileSystem) -> FileSystemFolder:
    dns_name, _, mount_name = lustre.mount_settings.source.partition("@tcp:/")
    # The DNS name begins with the id (FSx for Lustre user guide, "Mounting from an Amazon EC2 instance").
    return FileSystemFolder(Fn.select(0, Fn.split(".", dns_name)), "FSxLustre", f"/{mount_name}")


def _describe_failures(name_prefix: str) -> dict[str, Any]:
    """Return the arguments of `JobAlarms` (developer guide, "Events that Amazon SageMaker AI sends to EventBridge")."""
    return {
        "description": "Reports failed training jobs of a deep-learning stack on SageMaker",
        "pattern": {
            "source": ["aws.sagemaker"],
            "detail-type": ["SageMaker Training Job State Change"],
            "detail": {"TrainingJobName": [{"prefix": name_prefix}], "TrainingJobStatus": ["Failed"]},
        },
        "paths": {"name": "$.detail.TrainingJobName", "message": "$.detail.FailureReason"},
        "text": "Training job <name> has failed. <message>",
    }


def _add_warnings(scope: Construct, plan: TrainingPlan, keep_warm: Duration | None) -> None:
    judge_region(scope)
    if keep_warm is not None:
        Annotations.of(scope).add_warning_v2(
            KEPT_WARM,
            f"instances wait {keep_warm.to_human_string()} for the next job after each, and {plan.facts.name} costs by "
            "the second; leave keep_warm out unless jobs follow each other",
        )
