"""Training cluster: a master and workers that form and are checked before the stack completes."""

import jsii
from aws_cdk import Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from deeplearning_cdk.capacity.adjuster import CapacityAdjuster, request_capacity
from deeplearning_cdk.capacity.candidate import plan_search
from deeplearning_cdk.capacity.spending import Spending
from deeplearning_cdk.coordination.coordination import Coordination, name_cluster
from deeplearning_cdk.coordination.grants import grant_read_status, grant_session, grant_submit
from deeplearning_cdk.coordination.messages import AlarmTopic, make_log_group
from deeplearning_cdk.images.pin import pin_image
from deeplearning_cdk.network.addresses import check_subnet
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.cluster_nodes import ClusterNodes
from deeplearning_cdk.nodes.login_commands import session_command
from deeplearning_cdk.nodes.plan import NodePlan, plan_nodes
from deeplearning_cdk.nodes.programs import NodeSite
from deeplearning_cdk.nodes.values import KeyPair, Master, SetupTimeout, Software, Workers
from deeplearning_cdk.operations.metrics import ClusterMetrics
from deeplearning_cdk.operations.monitoring import ClusterMonitoring
from deeplearning_cdk.props.check import checked, show_duration
from deeplearning_cdk.props.tags import tag_costs
from deeplearning_cdk.security.encryption import ClusterEncryption, EncryptionKey
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_cdk.storage.values import Storage
from deeplearning_cdk.warnings import add_warnings
from deeplearning_contract.names import NodeRole

_DEFAULT_TIMEOUT = Duration.minutes(55)
_SHORTEST_MARGIN_SECONDS, _LONGEST_MARGIN_SECONDS = 180, 300


@jsii.implements(iam.IGrantable, ec2.IConnectable)
class TrainingCluster(Construct):
    """
    Training cluster: a master and workers that share a file system and train over SSH.

    The stack completes when every node of the membership has reported; otherwise it fails with the reason.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        workers: Instance type, capacity, purchase option, volume, set-up script and role of the workers. Default:
            `Workers()`, three p3dn.24xlarge.
        master: Instance type, purchase option, volume, scripts, SSH peer and role of the master. Default: `Master()`,
            like a worker.
        network: VPC, zone and subnets. Default: `Network()`, a new VPC with a NAT gateway.
        software: Image, and the environment of jobs. Default: `Software()`, an image for the instance type, and
            Horovod.
        storage: Shared file system, FSx for Lustre, and data in S3. Default: `Storage()`, a new EFS file system.
        spending: Conditions that stop the cluster, and its budget. Default: it never stops, and the app gets a warning.
        key_pair: EC2 key pair of the login user. Default: none.
        encryption_key: KMS key for every encryptable resource. Default: a key of the cluster's own.
        alarm_topic: Topic that receives the alarms. Default: a topic of the cluster's own.
        setup_timeout: Time that the stack waits for the cluster. Default: 55 minutes.

    Attributes:
        cluster_name: The cluster's name, the value of the tag `deeplearning:cluster`.
        encryption: The key of the cluster.
        network: VPC, subnets and security group of the nodes.
        coordination: State table, queues, topic and wait condition.
        storage: The file systems.
        file_system: The shared file system of all nodes.
        adjuster: The capacity adjuster.
        node_log: Log group of the nodes.
        metrics: CloudWatch metrics of the cluster, for dashboards and alarms.
        nodes: Roles and node groups.
        master: The master's node group.
        workers: The workers' node group.
        monitoring: Dashboard and alarms.
        formation: The wait condition that the cluster signals.
        session_command: The command that opens a Session Manager shell on the master.
        ssh_command: The command that opens an SSH session on the master; None without `ssh_peer` and `key_pair`.

    Raises:
        ValueError: A choice cannot work; the message names the prop, the rule and a way out.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        workers: Workers = Workers(),
        master: Master = Master(),
        network: Network = Network(),
        software: Software = Software(),
        storage: Storage = Storage(),
        spending: Spending = Spending(),
        key_pair: KeyPair | None = None,
        encryption_key: EncryptionKey | None = None,
        alarm_topic: AlarmTopic | None = None,
        setup_timeout: SetupTimeout | None = None,
    ) -> None:
        timeout = _check_timeout(setup_timeout or _DEFAULT_TIMEOUT, spending)
        plan = plan_nodes(workers, master, network, software, storage)
        search = plan_search([each.tag for each in plan.candidates], plan.name, workers.patience, timeout)
        super().__init__(scope, construct_id)
        add_warnings(self, plan, spending, isolated=network.isolated, has_lustre=storage.lustre is not None)
        self.cluster_name = tag_costs(self, name_cluster(self))
        self.metrics = ClusterMetrics(self.cluster_name)
        self.encryption = ClusterEncryption(
            self, "Encryption", key=encryption_key, is_kept=storage.outlives_stack, has_spot=plan.has_spot
        )
        key, log_key = self.encryption.key, self.encryption.log_key
        self.network = ClusterNetwork(
            self,
            "Network",
            network,
            public_master=master.ssh_peer is not None,
            log_key=log_key,
            fallbacks={fallback.tag: fallback.place for fallback in plan.fallbacks},
        )
        self._check_subnets(plan, isolated=network.isolated)
        self.coordination = Coordination(self, "Coordination", encryption_key=key)
        self.storage = ClusterStorage(
            self,
            storage,
            mode=plan.image.file_system_mode,
            network=self.network,
            state_table=self.coordination.state_table,
            encryption_key=key,
        )
        self.file_system = self.storage.file_system
        self.node_log = make_log_group(self, "NodeLog", key=log_key)
        self.adjuster = CapacityAdjuster(
            self,
            "CapacityAdjuster",
            cluster=self.cluster_name,
            coordination=self.coordination,
            encryption=self.encryption,
            worker_min_capacity=workers.capacity.minimum,
            capacity_reservation_id=plan.block_id,
            worker_block_id=plan.worker_block_id,
            spending=spending,
            search=search,
        )
        site = NodeSite(
            cluster=self.cluster_name,
            network=self.network,
            storage=self.storage,
            coordination=self.coordination,
            log_group=self.node_log,
            key_arn=self.encryption.key_arn,
            image_id=pin_image(self, plan.image, software.image_release, self.coordination, self.encryption),
            key_name=key_pair if key_pair is None or isinstance(key_pair, str) else key_pair.key_pair_name,
            ssh_peer=master.peer,
            security_groups=tuple(network.security_groups),
            data=tuple(storage.data),
            environment_cache=software.environment_cache,
            formation_seconds=_count_formation_seconds(timeout),
            stop_when_idle_seconds=int(spending.stop_when_idle.to_seconds()) if spending.stop_when_idle else 0,
        )
        self.nodes = ClusterNodes(self, "Nodes", plan, site)
        self.master, self.workers = self.nodes.groups[NodeRole.MASTER], self.nodes.groups[NodeRole.WORKER]
        self.node.default_child = self.workers.group
        self.session_command = session_command(self.cluster_name, Stack.of(self).region)
        self.monitoring = ClusterMonitoring(
            self,
            "Monitoring",
            metrics=self.metrics,
            session_command=self.session_command,
            has_gpus=plan.has_gpus,
            has_fallbacks=search is not None,
            formation_seconds=site.formation_seconds,
            spending=spending,
            alarm_topic=alarm_topic,
            coordination=self.coordination,
            adjuster=self.adjuster,
            node_log=self.node_log,
            file_system=self.file_system,
            encryption_key=key,
        )
        self.ssh_command = self.nodes.ssh_command
        self._order_creation(workers.capacity.desired, timeout)

    @property
    def connections(self) -> ec2.Connections:
        """Connections of every node."""
        return self.network.connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """Roles of all nodes: `bucket.grant_read(cluster)` applies to each."""
        return self.nodes.principal

    def grant_session(self, grantee: iam.IGrantable) -> iam.Grant:
        """
        Allow a grantee to log in to the nodes through Session Manager, as `deeplearning-cdk ssh` does.

        A session includes root on the node, and the use of the node's role.
        """
        return grant_session(grantee, self.cluster_name)

    def grant_submit(self, grantee: iam.IGrantable) -> iam.Grant:
        """
        Allow a grantee to run `deeplearning-cdk submit`, `jobs`, `stop` and `plan`.

        Jobs are started in a session, so this includes the rights of `grant_session`.
        """
        return grant_submit(grantee, self.cluster_name, self.nodes.submission.bucket)

    def grant_read_status(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a grantee to run `deeplearning-cdk status` and `logs` with the stack's name, read-only."""
        return grant_read_status(
            grantee,
            self.cluster_name,
            coordination=self.coordination,
            adjuster=self.adjuster.function,
            log_groups=[self.node_log, self.adjuster.function.log_group],
            key=self.encryption.key,
        )

    def _check_subnets(self, plan: NodePlan, *, isolated: bool) -> None:
        """Check that the nodes of each candidate fit into their subnets; the first one's has the endpoints too."""
        for each in plan.candidates:
            place = self.network.places.get(each.tag, self.network.place)
            is_first = place.worker_subnet is self.network.worker_subnet
            check_subnet(
                place.worker_subnet,
                has_master=place.has_one_subnet,
                master=each.master,
                most_workers=plan.capacity.maximum,
                is_public=place.has_public_master,
                isolated=isolated and is_first,
                prop="network" if is_first else each.place.prop,
            )

    def _order_creation(self, wanted: int, timeout: Duration) -> None:
        """Launch nodes, and start the wait condition, after all resources that nodes need or that can fail."""
        needs: list[IDependable] = [
            self.network.connectivity,
            *self.storage.readiness,
            self.coordination.readiness,
            self.adjuster,
            *self.nodes.readiness,
        ]
        candidates = [self.nodes.groups, *self.nodes.fallbacks.values()]
        groups = [nodes[role] for nodes in candidates for role in (NodeRole.MASTER, NodeRole.WORKER)]
        # In sequence: in a fresh account, two groups created at once race for Auto Scaling's service-linked role.
        for index, group in enumerate(groups):
            group.launch_after(*needs, *(former.group for former in groups[max(0, index - 1) : index]))
        request = request_capacity(self, self.adjuster, wanted)
        made = [group.group for group in groups]
        request.node.add_dependency(*needs, *made, self.network, self.monitoring)
        self.formation = self.coordination.wait_for_formation(timeout, *needs)


def _check_timeout(timeout: Duration, spending: Spending) -> Duration:
    """Return the stack's timeout, during which the cluster must not stop by itself."""
    if spending.stop_after is not None and spending.stop_after.to_seconds() <= timeout.to_seconds():
        raise ValueError(
            f"spending.stop_after must be more than setup_timeout ({show_duration(timeout)}), "
            f"got {show_duration(spending.stop_after)}; a cluster that stops while it forms "
            "fails its stack, so shorten setup_timeout or stop later"
        )
    return timeout


def _count_formation_seconds(timeout: Duration) -> int:
    """
    Return the part of the stack's timeout that the nodes may use, in seconds.

    The nodes stop earlier than CloudFormation, so that the stack fails with their reason instead of a timeout.
    """
    seconds = int(timeout.to_seconds())
    return seconds - min(_LONGEST_MARGIN_SECONDS, max(_SHORTEST_MARGIN_SECONDS, seconds // 5))
