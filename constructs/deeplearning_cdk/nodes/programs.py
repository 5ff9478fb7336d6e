"""Programs of the nodes: the agent, its settings, and the user's scripts."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.coordination.coordination import Coordination
from deeplearning_cdk.coordination.node_permissions import pull_statements, read_statement
from deeplearning_cdk.coordination.payload import keep_file, pack_agent
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.nodes.plan import NodePlan
from deeplearning_cdk.nodes.submission import JobSubmission, read_sources_statement
from deeplearning_cdk.nodes.user_data import NodeUserData
from deeplearning_cdk.nodes.user_scripts import CompleteCommands
from deeplearning_cdk.software.environment_cache import EnvironmentCache
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import EnvironmentSettings, JobNeeds, ScriptSettings
from deeplearning_contract.settings import NodeSettings


@dataclass(frozen=True, kw_only=True)
class NodeSite:
    """Resources and settings that the nodes of both roles use."""

    cluster: str
    network: ClusterNetwork
    storage: ClusterStorage
    coordination: Coordination
    log_group: logs.ILogGroup
    key_arn: str
    image_id: str
    key_name: str | None
    ssh_peer: ec2.IPeer | None
    security_groups: tuple[ec2.ISecurityGroup, ...]
    data: tuple[DataSource, ...]
    environment_cache: EnvironmentCache | None
    formation_seconds: int
    stop_when_idle_seconds: int


class FileAsset(Construct):
    """File as an asset of the stack, with its location and digest for the nodes."""

    def __init__(self, scope: Construct, construct_id: str, path: str) -> None:
        super().__init__(scope, construct_id)
        self.asset = s3_assets.Asset(self, "Asset", path=path)
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        self.settings = ScriptSettings(bucket=self.asset.s3_bucket_name, key=self.asset.s3_object_key, sha256=digest)


class NodePrograms(Construct):
    """Assets of the nodes: the agent's zip, the user's scripts and the file of the jobs' environment."""

    def __init__(self, scope: Construct, construct_id: str, plan: NodePlan, site: NodeSite) -> None:
        super().__init__(scope, construct_id)
        self._plan, self._site, self._region = plan, site, Stack.of(self).region
        self._commands: dict[NodeRole, list[str]] = {kind: [] for kind in plan.roles}
        self._agent = FileAsset(self, "Agent", pack_agent().path)
        self._setup = {kind: self._add_script(kind, "setup_script") for kind in plan.roles}
        self._run = {kind: self._add_script(kind, "run_script") for kind in plan.roles}
        path = plan.environment.path if plan.environment else ""
        self._environment_file = FileAsset(self, "Environment", path) if path else None
        self.submission = JobSubmission(
            self, "Submission", site.cluster, login_user=plan.image.login_user, bucket=self._agent.settings.bucket
        )

    def read_statements(self, node_role: NodeRole) -> list[iam.PolicyStatement]:
        """Return the permissions to read the programs of a role's nodes, and on the master the sources of jobs."""
        files = [self._agent, self._setup[node_role], self._run[node_role], self._environment_file]
        sources = (
            [read_sources_statement(self._site.cluster, self.submission.bucket)] if node_role is NodeRole.MASTER else []
        )
        environment = self._plan.environment
        pull = pull_statements(environment.image) if environment else []
        return [read_statement([file.asset for file in files if file]), *sources, *pull]

    def user_data(self, plan: NodePlan, node_role: NodeRole, worker_role: iam.Role) -> NodeUserData:
        """
        Render the user data of the nodes of a role.

        Args:
            plan: The candidate, of whose hardware the nodes are told.
            node_role: The role.
            worker_role: The IAM role whose reports the master accepts.
        """
        site, coordination, image = self._site, self._site.coordination, self._plan.image
        facts = plan.roles[node_role].facts
        is_master = node_role is NodeRole.MASTER
        setup, run = self._setup[node_role], self._run[node_role]
        settings = NodeSettings(
            cluster=site.cluster,
            role=node_role,
            region=self._region,
            state_table=coordination.state_table.table_name,
            master_queue_url=coordination.master_queue.queue_url,
            worker_queue_url=coordination.worker_queue.queue_url,
            report_queue_url=coordination.report_queue.queue_url,
            report_sender=worker_role.role_id if is_master else "",
            signal_url=coordination.signal_url if is_master else "",
            login_user=image.login_user,
            file_system=site.storage.settings,
            expected_gpu_count=facts.gpu_count if facts.accelerator == "NVIDIA" else 0,
            packages=list_packages(image, facts),
            setup_seconds=site.formation_seconds,
            log_group=site.log_group.log_group_name,
            setup_script=setup.settings if setup else None,
            run_script=run.settings if run else None,
            needs=JobNeeds(
                hardware=plan.hardware,
                data=tuple(source.settings for source in site.data),
                environment=describe_environment(
                    self._plan.environment, self._environment_file, site.environment_cache, image.interpreter
                ),
                lustre=site.storage.lustre_settings,
                has_head_node=plan.has_head_node,
            ),
            stop_when_idle_seconds=site.stop_when_idle_seconds if is_master else 0,
        )
        commands = self._commands[node_role]
        return NodeUserData(self, settings, self._agent.settings, image.interpreter, commands=commands)

    def _add_script(self, kind: NodeRole, prop: str) -> FileAsset | None:
        # Workers have no run script.
        script: str | ec2.UserData | None = getattr(self._plan.roles[kind].value, prop, None)
        construct_id = kind.value.title() + prop.title().replace("_", "")
        if script is None or isinstance(script, str):
            return FileAsset(self, construct_id, script) if script else None
        content = script.render().encode()
        asset = FileAsset(self, construct_id, keep_file("script.sh", content))
        asset.node.add_validation(CompleteCommands(f"{_VALUES[kind]}.{prop}", script, content))
        return asset


def describe_environment(
    chosen: JobEnvironment | None, file: FileAsset | None, cache: EnvironmentCache | None, interpreter: str
) -> EnvironmentSettings | None:
    """Return the settings of the jobs' environment; None for the image's own software."""
    if chosen is None:
        return None
    return EnvironmentSettings(
        chosen.kind,
        file.settings if file else None,
        chosen.image,
        chosen.horovod,
        chosen.framework,
        cache.settings if cache else None,
        interpreter,
    )


_VALUES = {NodeRole.MASTER: "master", NodeRole.WORKER: "workers"}
"""Prop of `TrainingCluster` for each role."""


def list_packages(image: NodeImage, facts: InstanceTypeFacts) -> Mapping[str, tuple[str, ...]]:
    """Return the packages of the image, without the driver for nodes without GPUs."""
    has_gpus = facts.accelerator is not None
    return {command: names for command, names in image.packages.items() if has_gpus or command != "nvidia-smi"}
