"""Training cluster on EMR: a primary and core instances that share a file system and train over SSH."""

from collections.abc import Sequence

import jsii
from aws_cdk import Annotations, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_emr as emr
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.capacity.spending import StopTime
from deeplearning_cdk.coordination.coordination import name_cluster
from deeplearning_cdk.coordination.grants import grant_session, grant_steps, grant_submit
from deeplearning_cdk.coordination.messages import AlarmTopic
from deeplearning_cdk.coordination.node_permissions import session_statements
from deeplearning_cdk.emr.alarms import EmrAlarms
from deeplearning_cdk.emr.plan import (
    DEFAULT_INSTANCE_TYPE,
    DEFAULT_RELEASE,
    EMR_IMAGE,
    LOGIN_USER,
    Application,
    EmrImage,
    EmrPlan,
    IdleTime,
    MemberCount,
    OneInstanceType,
    Release,
    Restart,
    RootVolume,
    plan_members,
)
from deeplearning_cdk.emr.programs import EmrPrograms
from deeplearning_cdk.emr.roles import EmrRoles, instance_log_statements, service_statements
from deeplearning_cdk.emr.site import LOG_DAYS, LOG_PREFIX, EmrSecurityGroups, encrypt_disks
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.submission import JobSubmission, read_sources_statement
from deeplearning_cdk.nodes.values import Software
from deeplearning_cdk.props.check import checked
from deeplearning_cdk.props.rules import count_gibibytes
from deeplearning_cdk.props.tags import tag_costs
from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_cdk.security.encryption import ClusterEncryption, EncryptionKey
from deeplearning_cdk.storage.buckets import make_log_bucket
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_cdk.storage.values import Storage
from deeplearning_cdk.warnings import NEVER_STOPS, judge_region
from deeplearning_contract.names import EMR_CLUSTER_TAG, EMR_PRIMARY, EMR_ROLE_TAG

_METADATA_STEP = ("sudo", "-n", "/usr/local/bin/deeplearning-member", "wait")


@jsii.implements(iam.IGrantable, ec2.IConnectable)
class EmrTraining(Construct):
    """
    Training cluster on EMR: uniform instance groups of one type, whose primary is rank 0.

    The step `metadata` succeeds when every member has the membership; otherwise EMR terminates the cluster, and its
    reason is in the step's log.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        instance_type: Instance type of every member. Default: g5.12xlarge.
        members: Number of members, the primary included. Default: 3.
        release: Release of EMR on Amazon Linux 2023. Default: emr-7.14.0.
        image: Machine image of every member: `emr`, the one that belongs to the release of EMR, or the id of an AMI
            made from the Base Deep Learning AMI on Amazon Linux 2023. Default: emr.
        applications: Applications of EMR. Default: Hadoop.
        root_volume: Size of every root volume; a number is GiB. Default: 100 GiB, the largest.
        network: VPC, zone and subnet. Default: `Network()`, a new VPC with a NAT gateway.
        software: Environment of jobs. Default: `Software()`, Horovod.
        storage: Shared file system, FSx for Lustre, and data in S3. Default: `Storage()`, a new EFS file system.
        encryption_key: KMS key of volumes, file systems, backups and logs. Default: a key of the cluster's own.
        stop_when_idle: Idle time after which EMR terminates the cluster. Default: never.
        stop_after: Time from the preparation of the primary until it powers itself off, which ends the cluster,
            whatever runs. Default: never; a cluster with GPUs and without either limit gets a warning.
        alarm_topic: Topic that receives the failures of steps and of the cluster. Default: a topic of the cluster's
            own.
        restart: Change this string to replace the cluster, such as one that `stop_when_idle` or `stop_after` has ended;
            files and jobs are on the shared file system. Default: none.

    Attributes:
        cluster_name: The cluster's name, the value of the tag `deeplearning:cluster`.
        encryption: The key of the cluster.
        network: VPC, subnet and security group of the members.
        security_groups: Security groups that EMR manages.
        storage: The file systems.
        file_system: The shared file system of all members.
        log_bucket: Bucket of EMR's logs.
        roles: Roles of EMR and of the instances.
        cluster: The cluster.
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
        instance_type: OneInstanceType = DEFAULT_INSTANCE_TYPE,
        members: MemberCount = 3,
        release: Release = DEFAULT_RELEASE,
        image: EmrImage = EMR_IMAGE,
        applications: Sequence[Application] = ("Hadoop",),
        root_volume: RootVolume | None = None,
        network: Network = Network(),
        software: Software = Software(),
        storage: Storage = Storage(),
        encryption_key: EncryptionKey | None = None,
        stop_when_idle: IdleTime | None = None,
        stop_after: StopTime | None = None,
        alarm_topic: AlarmTopic | None = None,
        restart: Restart = "",
    ) -> None:
        plan = plan_members(
            instance_type=instance_type,
            members=members,
            image=image,
            applications=applications,
            root_volume=root_volume,
            network=network,
            software=software,
            storage=storage,
        )
        super().__init__(scope, construct_id)
        _add_warnings(self, plan, has_end=stop_when_idle is not None or stop_after is not None)
        self.cluster_name = tag_costs(self, name_cluster(self))
        self.encryption = _make_encryption(self, encryption_key)
        self.network = ClusterNetwork(self, "Network", network, log_key=self.encryption.log_key, is_on_emr=True)
        self.security_groups = EmrSecurityGroups(self, "SecurityGroups", self.network.vpc)
        self.storage = ClusterStorage(
            self,
            storage,
            mode=plan.image.file_system_mode,
            network=self.network,
            state_table=None,
            encryption_key=self.encryption.key,
        )
        self.file_system = self.storage.file_system
        self.log_bucket = make_log_bucket(self, "LogBucket", self.encryption.key, days=LOG_DAYS)
        self._programs = EmrPrograms(
            self,
            "Programs",
            plan,
            cluster=self.cluster_name,
            storage=self.storage,
            data=storage.data,
            cache=software.environment_cache,
            stop_after_seconds=int(stop_after.to_seconds()) if stop_after else 0,
            restart=restart,
        )
        self._others = [self.network.security_group, *network.security_groups]
        self.roles = self._make_roles()
        self.cluster = self._make_cluster(plan, release, applications, stop_when_idle)
        self.node.default_child = self.cluster
        self.alarms = EmrAlarms(
            self, "Alarms", cluster_id=self.cluster.ref, topic=alarm_topic, encryption_key=self.encryption.key
        )
        self.submission = self._make_submission()

    @property
    def connections(self) -> ec2.Connections:
        """Connections of every member."""
        return self.network.connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """Role of all members: `bucket.grant_read(training)` applies to each."""
        return self.roles.instance

    @property
    def session_command(self) -> str:
        """Command that opens a Session Manager shell on the primary; it needs the rights of `grant_session`."""
        region = Stack.of(self).region
        filters = {
            f"tag:{EMR_CLUSTER_TAG}": self.cluster.ref,
            f"tag:{EMR_ROLE_TAG}": EMR_PRIMARY,
            "instance-state-name": "running",
        }
        words = " ".join(f"Name={name},Values={value}" for name, value in filters.items())
        return (
            f"aws ssm start-session --region {region} --target $(aws ec2 describe-instances --region {region} "
            f"--filters {words} --query 'Reservations[0].Instances[0].InstanceId' --output text)"
        )

    def grant_session(self, grantee: iam.IGrantable) -> iam.Grant:
        """
        Allow a grantee to log in to the members through Session Manager.

        A session includes root on the member, and the use of the members' role.
        """
        return grant_session(grantee, self.cluster_name)

    def grant_submit(self, grantee: iam.IGrantable) -> iam.Grant:
        """
        Allow a grantee to submit, list, show and stop jobs with `deeplearning-cdk`.

        It includes a session on each member, and the steps of the cluster.
        """
        steps = grant_steps(grantee, self.cluster_name, self.cluster.ref)
        return grant_submit(grantee, self.cluster_name, self.submission.bucket).combine(steps)

    def _make_roles(self) -> EmrRoles:
        key_arn = self.encryption.key_arn
        roles = EmrRoles(
            self,
            "Roles",
            service_statements=service_statements(
                self.cluster_name, self.network, self.security_groups, self._others, key_arn
            ),
            instance_statements=[
                *self._programs.read_statements(),
                read_sources_statement(self.cluster_name, self._programs.bucket),
                *instance_log_statements(self.log_bucket, LOG_PREFIX, key_arn),
                *self.file_system.mount_statements(),
                *session_statements(),
            ],
        )
        self._programs.grant_keys(roles.instance)
        return roles

    def _make_cluster(
        self, plan: EmrPlan, release: str, applications: Sequence[str], idle: IdleTime | None
    ) -> emr.CfnCluster:
        cluster = emr.CfnCluster(
            self,
            "Cluster",
            name=self.cluster_name,
            release_label=release,
            applications=[emr.CfnCluster.ApplicationProperty(name=name) for name in applications],
            custom_ami_id=plan.image.read_ami_id(self) if plan.has_custom_image else None,
            ebs_root_volume_size=count_gibibytes(plan.root_gibibytes),
            instances=self._describe_instances(plan),
            bootstrap_actions=[self._programs.bootstrap_action],
            steps=[_describe_metadata_step()],
            auto_termination_policy=(
                emr.CfnCluster.AutoTerminationPolicyProperty(idle_timeout=idle.to_seconds()) if idle else None
            ),
            log_uri=f"s3://{self.log_bucket.bucket_name}/{LOG_PREFIX}",
            log_encryption_kms_key_id=self.encryption.key_arn,
            security_configuration=encrypt_disks(self, "SecurityConfiguration", self.encryption.key_arn).ref,
            service_role=self.roles.service.role_arn,
            job_flow_role=self.roles.profile_name,
            visible_to_all_users=True,
        )
        # Instances and their HDFS end with the stack; data that outlives it is on the shared file system.
        cluster.apply_removal_policy(RemovalPolicy.DESTROY)
        acknowledge(cluster, "emr-disk-encryption", "emr-in-transit", "emr-login")
        # A cluster without a mount target fails in its bootstrap action; one without a right, when EMR uses it.
        cluster.node.add_dependency(
            self.network.connectivity,
            self.security_groups,
            *self.storage.readiness,
            self.log_bucket,
            self.roles,
            self._programs,
        )
        return cluster

    def _make_submission(self) -> JobSubmission:
        return JobSubmission(
            self,
            "Submission",
            self.cluster_name,
            login_user=LOGIN_USER,
            bucket=self._programs.bucket,
            platform="emr",
            cluster_id=self.cluster.ref,
        )

    def _describe_instances(self, plan: EmrPlan) -> emr.CfnCluster.JobFlowInstancesConfigProperty:
        groups, others = self.security_groups, [group.security_group_id for group in self._others]

        def describe(name: str, count: int) -> emr.CfnCluster.InstanceGroupConfigProperty:
            return emr.CfnCluster.InstanceGroupConfigProperty(
                name=name, instance_type=plan.facts.name, instance_count=count, market="ON_DEMAND"
            )

        return emr.CfnCluster.JobFlowInstancesConfigProperty(
            master_instance_group=describe("primary", 1),
            core_instance_group=describe("core", plan.members - 1),
            ec2_subnet_id=self.network.worker_subnet.subnet_id,
            emr_managed_master_security_group=groups.primary.security_group_id,
            emr_managed_slave_security_group=groups.core.security_group_id,
            service_access_security_group=groups.service.security_group_id,
            additional_master_security_groups=others,
            additional_slave_security_groups=others,
            keep_job_flow_alive_when_no_steps=True,
            termination_protected=False,
            # EMR would end a core instance whose disk a job has filled. A lost one is replaced in any case.
            unhealthy_node_replacement=False,
        )


def _make_encryption(scope: Construct, key: EncryptionKey | None) -> ClusterEncryption:
    encryption = ClusterEncryption(scope, "Encryption", key=key, is_for_groups=False)
    if key is None:
        # The log bucket outlives a creation that fails, and needs its key.
        encryption.key.apply_removal_policy(RemovalPolicy.RETAIN)
    return encryption


def _describe_metadata_step() -> emr.CfnCluster.StepConfigProperty:
    return emr.CfnCluster.StepConfigProperty(
        name="metadata",
        # A cluster that cannot train must not cost.
        action_on_failure="TERMINATE_CLUSTER",
        hadoop_jar_step=emr.CfnCluster.HadoopJarStepConfigProperty(jar="command-runner.jar", args=list(_METADATA_STEP)),
    )


def _add_warnings(scope: Construct, plan: EmrPlan, *, has_end: bool) -> None:
    judge_region(scope)
    if plan.facts.accelerator is not None and not has_end:
        Annotations.of(scope).add_warning_v2(
            NEVER_STOPS,
            f"nothing stops this cluster, and {plan.facts.name} costs by the second; set "
            "stop_when_idle, such as to one hour",
        )
