"""Training cluster on EKS: a control plane, a node for the system's pods, and members that run jobs as pods."""

from collections.abc import Sequence

import jsii
from aws_cdk import Annotations, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.capacity.purchase import ChosenPurchase
from deeplearning_cdk.catalog.instance_catalog import NodeInstanceType
from deeplearning_cdk.coordination.coordination import name_cluster
from deeplearning_cdk.coordination.grants import grant_uploads
from deeplearning_cdk.coordination.messages import AlarmTopic
from deeplearning_cdk.coordination.node_permissions import event_statement, pull_statements
from deeplearning_cdk.coordination.payload import pack_member
from deeplearning_cdk.eks.addons import EksAddons
from deeplearning_cdk.eks.alarms import PodJobAlarm
from deeplearning_cdk.eks.control_plane import ControlPlane
from deeplearning_cdk.eks.node_images import NodeImageKind
from deeplearning_cdk.eks.nodes import LABEL_KEY, LABEL_VALUE, EksNodes
from deeplearning_cdk.eks.plan import (
    DEFAULT_CAPACITY,
    DEFAULT_INSTANCE_TYPE,
    DEFAULT_NAMESPACE,
    DEFAULT_SYSTEM_TYPE,
    DEFAULT_VERSION,
    ApiPeer,
    Capacity,
    EksPlan,
    ImageDisk,
    InitialCount,
    KubernetesVersion,
    Namespace,
    NodeCount,
    PodImage,
    PrincipalArn,
    QueueName,
    check_administrators,
    choose_capacities,
    plan_nodes,
)
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.interfaces import describe_hardware
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.member_settings import CONTAINER_USER, describe_container
from deeplearning_cdk.nodes.programs import FileAsset
from deeplearning_cdk.nodes.submission import JobSubmission, read_sources_statement
from deeplearning_cdk.nodes.training_image import TrainingImage
from deeplearning_cdk.nodes.values import Software
from deeplearning_cdk.props.check import checked
from deeplearning_cdk.props.tags import tag_costs
from deeplearning_cdk.security.encryption import ClusterEncryption, EncryptionKey
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_cdk.storage.values import Storage
from deeplearning_cdk.warnings import NEVER_STOPS, NO_ADMINISTRATOR, judge_region, judge_types
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.jobs.submission import KubernetesSettings
from deeplearning_contract.setting_parts import FileSystemSettings
from deeplearning_contract.settings import NodeSettings

_SERVICE_ACCOUNT = "deeplearning-job"


@jsii.implements(iam.IGrantable, ec2.IConnectable)
class EksTraining(Construct):
    """
    Training cluster on EKS: each job is one Indexed Job of Kubernetes with as many pods as it has members.

    The pods mount the shared file system, meet on it, and train over SSH; the pod of index 0 is rank 0. Objects of
    Kubernetes are made by `deeplearning-cdk`, so nothing of the stack has rights in the cluster.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        instance_type: Instance type of every member. Default: p3dn.24xlarge.
        members: Nodes of the members' group. Default: 2.
        initial_members: Nodes of the members' group at its creation, and again after a deployment that changes
            `members`, which ends the others. 0 lets a stack be created before there is capacity. Default: `members`.
        version: Version of Kubernetes. Default: 1.35.
        node_image: Image of all nodes: `bottlerocket` or `amazon-linux`, which is Amazon Linux 2023. Default:
            bottlerocket, which contains the NVIDIA device plugin.
        image_disk: Size of the disk for images of each member; a number is GiB. Default: 200 GiB.
        system_instance_type: Instance type of the one node for DNS and drivers. Default: m7i.large.
        purchase: Purchase option of the members: on demand, spot, one reservation, or a Capacity Block in
            `network.availability_zone`. Default: on demand.
        administrators: ARNs of IAM roles and users who may change everything in the cluster, and so may run
            `deeplearning-cdk prepare-cluster`. Default: none, with a warning.
        api_from: Networks from which the API server is reached over the Internet. Default: none, only from the VPC.
        namespace: Namespace of jobs. Default: kubeflow-dist-train.
        shared_capacity: Capacity of the volume of the shared file system, such as `85Gi`, which EFS does not enforce.
            Default: 85Gi.
        claim_capacity: Capacity of the claim, at most that of the volume. Default: that of the volume.
        queue: LocalQueue of Kueue, which you install, that starts jobs. Default: none; jobs start at once.
        image: URI of the pods' image, with Python 3.10 or newer, OpenSSH's server and client, and iproute2. Default: an
            image with `software.environment`, which is built at deployment.
        network: VPC, zone and subnet; a VPC of your own needs a private subnet in a second zone. Default: `Network()`,
            a new VPC with a NAT gateway.
        software: Environment of jobs. Default: `Software()`, Horovod.
        storage: Shared file system, and data in S3. Default: `Storage()`, a new EFS file system.
        encryption_key: KMS key of secrets, disks, file systems, backups and logs. Default: a key of the cluster's own.
        alarm_topic: Topic that receives the failures of jobs. Default: a topic of the cluster's own.

    Attributes:
        cluster_name: Name of the whole, the value of the tag `deeplearning:cluster` of its resources.
        encryption: The key.
        network: VPC, subnet and security group of the nodes.
        control_plane: The cluster of EKS, with its name and its access entries.
        storage: The file systems.
        file_system: The shared file system.
        addons: The add-ons.
        nodes: The node groups and their role.
        image_uri: Image of the pods.
        role: Role of the pods of jobs.
        alarm: Topic and rule of failed jobs.
        submission: Where jobs are submitted.
        kubeconfig_command: Command that lets kubectl find the cluster.
        scale_down_command: Command that ends the members, which cost while no job runs.

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
        members: NodeCount = 2,
        initial_members: InitialCount | None = None,
        version: KubernetesVersion = DEFAULT_VERSION,
        node_image: NodeImageKind = "bottlerocket",
        image_disk: ImageDisk = 200,
        system_instance_type: NodeInstanceType = DEFAULT_SYSTEM_TYPE,
        purchase: ChosenPurchase | None = None,
        administrators: Sequence[PrincipalArn] = (),
        api_from: Sequence[ApiPeer] = (),
        namespace: Namespace = DEFAULT_NAMESPACE,
        shared_capacity: Capacity = DEFAULT_CAPACITY,
        claim_capacity: Capacity | None = None,
        queue: QueueName | None = None,
        image: PodImage | None = None,
        network: Network = Network(),
        software: Software = Software(),
        storage: Storage = Storage(),
        encryption_key: EncryptionKey | None = None,
        alarm_topic: AlarmTopic | None = None,
    ) -> None:
        self._plan = plan_nodes(
            instance_type=instance_type,
            members=members,
            initial_members=initial_members,
            system_instance_type=system_instance_type,
            node_image=node_image,
            image_disk=image_disk,
            purchase=purchase,
            image=image,
            network=network,
            software=software,
            storage=storage,
        )
        self._capacities = choose_capacities(shared_capacity, claim_capacity)
        check_administrators(administrators)
        super().__init__(scope, construct_id)
        self._namespace, self._queue = namespace, queue or ""
        self.cluster_name = tag_costs(self, name_cluster(self))
        self.encryption = ClusterEncryption(self, "Encryption", key=encryption_key, has_spot=self._plan.is_spot)
        self.network = ClusterNetwork(self, "Network", network, log_key=self.encryption.log_key)
        self.control_plane = self._make_control_plane(version, network, api_from, administrators)
        self.storage = self._make_storage(storage)
        self.file_system, self._data = self.storage.file_system, tuple(storage.data)
        self._agent = FileAsset(self, "Agent", pack_member(self._describe_member(storage.mount_point)))
        self.image_uri = image or self._build_image(software)
        self.addons = EksAddons(
            self,
            "Addons",
            cluster=self.control_plane.cluster,
            cluster_name=self.cluster_name,
            subnet=self.network.worker_subnet,
        )
        self.nodes = self._make_nodes(image, network)
        self.role = self._make_role()
        self.alarm = PodJobAlarm(
            self, "Alarm", cluster=self.cluster_name, topic=alarm_topic, encryption_key=self.encryption.key
        )
        self.kubeconfig_command, self.scale_down_command = self._list_commands()
        self.submission = self._make_submission(storage.mount_point)
        _add_warnings(self, self._plan, has_administrator=bool(administrators))

    @property
    def connections(self) -> ec2.Connections:
        """Connections of every node."""
        return self.network.connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """Role of the pods of jobs: `bucket.grant_read(training)` applies to each."""
        return self.role

    def grant_submit(self, grantee: iam.IGrantable) -> iam.Grant:
        """
        Allow a role or a user to submit, list, show and stop jobs with `deeplearning-cdk` or kubectl in the namespace.

        It includes all rights of the role of jobs, because a submitter chooses what they run.

        Raises:
            ValueError: The grantee is neither a role nor a user, which EKS cannot admit.
        """
        self.control_plane.admit_submitter(grantee, self._namespace)
        return grant_uploads(grantee, self.cluster_name, self.submission.bucket, self._agent.settings)

    def _make_control_plane(
        self, version: str, network: Network, api_from: Sequence[str], administrators: Sequence[str]
    ) -> ControlPlane:
        control_plane = ControlPlane(
            self,
            "ControlPlane",
            cluster_name=self.cluster_name,
            version=version,
            network=self.network,
            choice=network,
            api_from=api_from,
            encryption=self.encryption,
        )
        self.node.default_child = control_plane
        for arn in administrators:
            control_plane.admit_administrator(arn)
        return control_plane

    def _make_storage(self, storage: Storage) -> ClusterStorage:
        return ClusterStorage(
            self, storage, mode="efs", network=self.network, state_table=None, encryption_key=self.encryption.key
        )

    def _describe_member(self, mount_point: str) -> NodeSettings:
        """Return the settings of a pod, which contain no tokens; Kubernetes mounts the shared file system."""
        return describe_container(
            self._plan.facts,
            file_system=FileSystemSettings("claim", mount_point, "", mount_point),
            data=self._data,
            environment=self._plan.environment,
            event_cluster=self.cluster_name,
        )

    def _build_image(self, software: Software) -> str:
        built = TrainingImage(self, "Image", environment=software.environment, instance_type=self._plan.facts)
        return built.image_uri

    def _make_nodes(self, image: str | None, network: Network) -> EksNodes:
        nodes = EksNodes(
            self,
            "Nodes",
            cluster=self.control_plane.cluster,
            cluster_name=self.cluster_name,
            plan=self._plan,
            subnet=self.network.worker_subnet,
            groups=[self.network.security_group, *network.security_groups],
            key_arn=self.encryption.key_arn,
            # The driver of the file system mounts as the node.
            statements=[*self.file_system.mount_statements(), *pull_statements(image or "")],
        )
        for group in (nodes.system, nodes.members):
            group.node.add_dependency(*self.addons.before_nodes, *self.storage.readiness)
        self.addons.await_node(nodes.system)
        return nodes

    def _make_role(self) -> iam.Role:
        statements = [
            read_sources_statement(self.cluster_name, self._agent.settings.bucket),
            event_statement(self.cluster_name, EventKind.JOB_FAILED),
            *(right for source in self._data for right in source.read_statements()),
        ]
        role = self.addons.make_role("JobRole", _SERVICE_ACCOUNT, self._namespace, statements)
        for source in self._data:
            source.grant_key(role)
        self._association = self.addons.bind("Jobs", _SERVICE_ACCOUNT, self._namespace, role)
        return role

    def _list_commands(self) -> tuple[str, str]:
        region, name = Stack.of(self).region, self.control_plane.cluster.ref
        group = self.nodes.members.attr_nodegroup_name
        scale = f"aws eks update-nodegroup-config --region {region} --cluster-name {name} --nodegroup-name {group}"
        kubeconfig = f"aws eks update-kubeconfig --region {region} --name {name}"
        return kubeconfig, f"{scale} --scaling-config minSize=0,desiredSize=0"

    def _describe_jobs(self, mount_point: str) -> KubernetesSettings:
        plan, cluster, (shared, claim) = self._plan, self.control_plane.cluster, self._capacities
        return KubernetesSettings(
            cluster_name=cluster.ref,
            endpoint=cluster.attr_endpoint,
            authority=cluster.attr_certificate_authority_data,
            namespace=self._namespace,
            service_account=_SERVICE_ACCOUNT,
            image=self.image_uri,
            members=plan.members,
            gpu_count=describe_hardware(plan.facts).gpu_count,
            efa_count=plan.efa_count,
            memory_mib=plan.memory_mib,
            disk_gibibytes=plan.disk_gibibytes,
            node_label=f"{LABEL_KEY}={LABEL_VALUE}",
            mount_point=mount_point,
            volume_handle=f"{self.file_system.file_system_id}::{self.file_system.access_point_id}",
            shared_capacity=shared,
            claim_capacity=claim,
            agent=self._agent.settings,
            region=Stack.of(self).region,
            has_nvidia_plugin=plan.has_nvidia_plugin,
            queue=self._queue,
            data=tuple(source.settings for source in self._data),
        )

    def _make_submission(self, mount_point: str) -> JobSubmission:
        submission = JobSubmission(
            self,
            "Submission",
            self.cluster_name,
            login_user=CONTAINER_USER,
            bucket=self._agent.settings.bucket,
            platform="eks",
            kubernetes=self._describe_jobs(mount_point),
        )
        # A job that is submitted as soon as the document exists finds all that it needs.
        submission.node.add_dependency(self.nodes.members, *self.addons.after_nodes, self._association, self.alarm)
        return submission


def _add_warnings(scope: Construct, plan: EksPlan, *, has_administrator: bool) -> None:
    judge_region(scope)
    judge_types(scope, plan.facts, plan.system)
    annotations = Annotations.of(scope)
    if plan.facts.accelerator is not None:
        annotations.add_warning_v2(
            NEVER_STOPS,
            f"nothing stops the members, and {plan.facts.name} costs by the second while no job runs; scale their "
            "group to 0 with the command of the output ScaleDown",
        )
    if not has_administrator:
        annotations.add_warning_v2(
            NO_ADMINISTRATOR,
            "nobody may prepare the cluster, so no job can run: EKS gives nobody access by creation; name your role in "
            "administrators",
        )
