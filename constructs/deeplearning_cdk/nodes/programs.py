"""What nodes run: the agent, the user's scripts, and the settings that tell the agent about its cluster."""

from collections.abc import Mapping

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.coordination import Coordination
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.nodes.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.nodes.user_data import AgentAsset, NodeUserData
from deeplearning_cdk.nodes.user_scripts import ScriptAsset, SetupScripts
from deeplearning_cdk.security.node_permissions import read_statement
from deeplearning_cdk.software.environment_cache import EnvironmentCache
from deeplearning_cdk.software.job_environment import EnvironmentAsset, JobEnvironment
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import FileSystemSettings, JobNeeds
from deeplearning_contract.settings import NodeSettings


class NodePrograms(Construct):
    """
    The agent's zip, the user's scripts and the environment of jobs, as assets.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        setup_scripts: What runs as root on the nodes of each role.
        run_script: What runs on the formed master. Default: nothing.
        environment: The software that jobs run in; None for the image's own.
        environment_cache: Where it is kept for other clusters. Default: nowhere.

    Attributes:
        environment: What nodes are told of it; None for the image's own.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        setup_scripts: SetupScripts,
        run_script: str | ec2.UserData | None = None,
        environment: JobEnvironment | None = None,
        environment_cache: EnvironmentCache | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._agent = AgentAsset(self, "Agent")
        self._setup = {role: self._add_script("setup_script", role, setup_scripts.of(role)) for role in NodeRole}
        self._run = {NodeRole.MASTER: self._add_script("run_script", NodeRole.MASTER, run_script)}
        cache = environment_cache.settings if environment_cache else None
        file = EnvironmentAsset(self, "Environment", environment=environment, cache=cache) if environment else None
        self.environment = file.settings if file else None
        self._environment_asset = file.asset if file else None

    def read_statement(self, node_role: NodeRole) -> iam.PolicyStatement:
        """Return the right to read what nodes of a role run."""
        scripts = [self._setup[node_role], self._run.get(node_role)]
        assets = [self._agent.asset, *(script.asset for script in scripts if script)]
        return read_statement([*assets, *([self._environment_asset] if self._environment_asset else [])])

    def user_data(
        self,
        *,
        cluster: str,
        node_role: NodeRole,
        coordination: Coordination,
        worker_role: iam.Role,
        file_system: FileSystemSettings,
        needs: JobNeeds,
        facts: InstanceTypeFacts,
        image: NodeImage,
        worker_min_capacity: int,
        setup_seconds: int,
        log_group: str,
        stop_when_idle_seconds: int = 0,
    ) -> NodeUserData:
        """
        Render the user data of the nodes of a role.

        Args:
            cluster: The cluster's name.
            node_role: What the nodes are for.
            coordination: State item, queues and signal.
            worker_role: The role whose reports the master believes.
            file_system: How the shared file system is mounted.
            needs: What jobs find on the nodes.
            facts: The instance type.
            image: What the nodes start from.
            worker_min_capacity: Fewest workers with which the cluster may form.
            setup_seconds: Time that formation may take.
            log_group: Name of the log group that nodes ship their log to.
            stop_when_idle_seconds: How long the cluster may do nothing before it ends. Default: for ever.
        """
        is_master = node_role is NodeRole.MASTER
        settings = NodeSettings(
            cluster=cluster,
            role=node_role,
            region=Stack.of(self).region,
            state_table=coordination.state_table.table_name,
            master_queue_url=coordination.master_queue.queue_url,
            worker_queue_url=coordination.worker_queue.queue_url,
            report_queue_url=coordination.report_queue.queue_url,
            report_sender=worker_role.role_id if is_master else "",
            signal_url=coordination.signal_url if is_master else "",
            login_user=image.login_user,
            file_system=file_system,
            expected_gpu_count=facts.gpu_count if facts.accelerator == "NVIDIA" else 0,
            packages=_list_packages(image, facts),
            worker_min_capacity=worker_min_capacity,
            setup_seconds=setup_seconds,
            log_group=log_group,
            setup_script=setup.settings if (setup := self._setup[node_role]) else None,
            run_script=run.settings if (run := self._run.get(node_role)) else None,
            needs=needs,
            stop_when_idle_seconds=stop_when_idle_seconds if is_master else 0,
        )
        return NodeUserData(self, settings, self._agent, image.interpreter)

    def _add_script(self, prop: str, role: NodeRole, script: str | ec2.UserData | None) -> ScriptAsset | None:
        if script is None:
            return None
        name = role.value.title() + "".join(word.title() for word in prop.split("_"))
        return ScriptAsset(self, name, prop=prop, script=script)


def _list_packages(image: NodeImage, facts: InstanceTypeFacts) -> Mapping[str, tuple[str, ...]]:
    """A node without GPUs needs no driver, though its image is that of nodes with some."""
    has_gpus = facts.accelerator is not None
    return {command: names for command, names in image.packages.items() if has_gpus or command != "nvidia-smi"}
