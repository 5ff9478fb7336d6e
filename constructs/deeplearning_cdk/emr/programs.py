"""Programs of an EMR cluster: the agent, its bootstrap action, and the settings of the members."""

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_emr as emr
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.emr.plan import LOGIN_USER, EmrPlan
from deeplearning_cdk.nodes.interfaces import describe_hardware
from deeplearning_cdk.nodes.payload import find_payload, keep_file, pack_agent
from deeplearning_cdk.nodes.programs import FileAsset, describe_environment, list_packages
from deeplearning_cdk.nodes.user_data import fill
from deeplearning_cdk.security.node_permissions import read_statement
from deeplearning_cdk.software.environment_cache import EnvironmentCache
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_contract.settings import NodeSettings

_SCRIPT = "emr_bootstrap.sh"
_SETUP_SECONDS = 45 * 60
"""Time from a member's first start to the membership; EMR itself gives bootstrap actions an hour."""


class EmrPrograms(Construct):
    """
    Assets of the members, and the bootstrap action that installs them.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        plan: The members.
        cluster: The cluster's name.
        storage: The file systems.
        data: Data in S3 for jobs.
        cache: Cache of the jobs' environment; None without one.
        stop_after_seconds: Time after which the primary ends the cluster; 0 for never.

    Attributes:
        bucket: Bucket of the stack's assets.
        bootstrap_action: The bootstrap action of every instance.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        plan: EmrPlan,
        *,
        cluster: str,
        storage: ClusterStorage,
        data: Sequence[DataSource],
        cache: EnvironmentCache | None,
        stop_after_seconds: int,
    ) -> None:
        super().__init__(scope, construct_id)
        self._plan, self._data, self._cache = plan, tuple(data), cache
        self._agent = FileAsset(self, "Agent", pack_agent().path)
        self.bucket = self._agent.settings.bucket
        path = plan.environment.path if plan.environment else ""
        self._environment_file = FileAsset(self, "Environment", path) if path else None
        program = find_payload("fetch_agent.py").read_text().rstrip("\n")
        script = fill(_SCRIPT, find_payload(_SCRIPT).read_text(), {"__FETCH_AGENT__": program})
        self._script = FileAsset(self, "Bootstrap", keep_file(_SCRIPT, script.encode()))
        settings = self._describe_settings(cluster, storage, stop_after_seconds)
        self.bootstrap_action = self._describe_action(settings)

    def read_statements(self) -> list[iam.PolicyStatement]:
        """Return the permissions to read the programs, the data and the cache; each instance can be the primary."""
        files = [self._agent, self._script, self._environment_file]
        return [
            read_statement([file.asset for file in files if file]),
            *(right for source in self._list_read_data() for right in source.read_statements()),
            *(self._cache.master_statements() if self._cache else ()),
        ]

    def grant_keys(self, role: iam.IRole) -> None:
        """Allow the instances' role to use the keys of the user's buckets."""
        for source in self._list_read_data():
            source.grant_key(role)
        if self._cache is not None:
            self._cache.grant_key(role)

    def _list_read_data(self) -> list[DataSource]:
        return [source for source in self._data if source.is_read_by(NodeRole.MASTER)]

    def _describe_settings(self, cluster: str, storage: ClusterStorage, stop_after_seconds: int) -> NodeSettings:
        facts, stack = self._plan.facts, Stack.of(self)
        hardware = describe_hardware(facts)
        return NodeSettings(
            cluster=cluster,
            # The agent replaces it by the role that EMR gave to the instance.
            role=NodeRole.WORKER,
            region=stack.region,
            state_table="",
            master_queue_url="",
            worker_queue_url="",
            report_queue_url="",
            report_sender="",
            signal_url="",
            login_user=LOGIN_USER,
            file_system=storage.settings,
            expected_gpu_count=hardware.gpu_count,
            packages=list_packages(self._plan.image, facts),
            worker_min_capacity=self._plan.members - 1,
            setup_seconds=_SETUP_SECONDS,
            stop_after_seconds=stop_after_seconds,
            needs=JobNeeds(
                hardware={role.value: hardware for role in NodeRole},
                data=tuple(source.settings for source in self._data),
                environment=describe_environment(
                    self._plan.environment, self._environment_file, self._cache, self._plan.image.interpreter
                ),
                lustre=storage.lustre_settings,
            ),
        )

    def _describe_action(self, settings: NodeSettings) -> emr.CfnCluster.BootstrapActionConfigProperty:
        agent, script, stack = self._agent.settings, self._script.settings, Stack.of(self)
        return emr.CfnCluster.BootstrapActionConfigProperty(
            name="deeplearning",
            script_bootstrap_action=emr.CfnCluster.ScriptBootstrapActionConfigProperty(
                path=f"s3://{script.bucket}/{script.key}",
                args=[
                    agent.bucket,
                    agent.key,
                    agent.sha256,
                    stack.region,
                    self._plan.image.interpreter,
                    stack.to_json_string(settings.to_document()),
                ],
            ),
        )
