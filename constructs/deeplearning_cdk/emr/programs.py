"""
Programs of an EMR cluster: the agent, the settings of the members, and the bootstrap action that starts from both.

CloudFormation replaces a cluster whose bootstrap actions differ, so all that a release of this library or another prop
changes is in an SSM parameter, which the action reads.
"""

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_emr as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from deeplearning_cdk.coordination.node_permissions import pull_statements, read_statement
from deeplearning_cdk.coordination.payload import find_payload, keep_file, pack_agent
from deeplearning_cdk.emr.plan import LOGIN_USER, EmrPlan
from deeplearning_cdk.nodes.member_settings import describe_member
from deeplearning_cdk.nodes.programs import FileAsset, describe_environment, list_packages
from deeplearning_cdk.nodes.submission import make_parameter
from deeplearning_cdk.nodes.user_data import fill
from deeplearning_cdk.software.environment_cache import EnvironmentCache
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import compact
from deeplearning_contract.settings import NodeSettings

_SCRIPT = "emr_bootstrap.sh"
_SETUP_SECONDS = 45 * 60
"""Time from a member's first start to the membership."""


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
        restart: Text whose change replaces the cluster; empty for none.

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
        restart: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self._plan, self._data, self._cache = plan, tuple(data), cache
        self._agent = FileAsset(self, "Agent", pack_agent().path)
        self.bucket = self._agent.settings.bucket
        path = plan.environment.path if plan.environment else ""
        self._environment_file = FileAsset(self, "Environment", path) if path else None
        self._script = FileAsset(self, "Bootstrap", keep_file(_SCRIPT, render_bootstrap().encode()))
        self._release = self._make_release(self._describe_settings(cluster, storage, stop_after_seconds))
        self.bootstrap_action = self._describe_action(restart)

    def read_statements(self) -> list[iam.PolicyStatement]:
        """Return the permissions to read the programs, the data and the cache; each instance can be the primary."""
        files = [self._agent, self._script, self._environment_file]
        return [
            read_statement([file.asset for file in files if file]),
            iam.PolicyStatement(actions=["ssm:GetParameter"], resources=[self._release.parameter_arn]),
            *(pull_statements(self._plan.environment.image) if self._plan.environment else ()),
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
        environment = describe_environment(
            self._plan.environment, self._environment_file, self._cache, self._plan.image.interpreter
        )
        return describe_member(
            self._plan.facts,
            cluster=cluster,
            region=Stack.of(self).region,
            login_user=LOGIN_USER,
            file_system=storage.settings,
            packages=list_packages(self._plan.image, self._plan.facts),
            setup_seconds=_SETUP_SECONDS,
            stop_after_seconds=stop_after_seconds,
            data=[source.settings for source in self._data],
            environment=environment,
            lustre=storage.lustre_settings,
        )

    def _make_release(self, settings: NodeSettings) -> ssm.StringParameter:
        release = {
            "agent": compact(self._agent.settings),
            "interpreter": self._plan.image.interpreter,
            "settings": settings.to_document(),
        }
        return make_parameter(
            self,
            "Release",
            release,
            subject="settings of the members",
            description="Agent and settings from which new members of a cluster on EMR start",
        )

    def _describe_action(self, restart: str) -> emr.CfnCluster.BootstrapActionConfigProperty:
        script = self._script.settings
        return emr.CfnCluster.BootstrapActionConfigProperty(
            name=f"deeplearning {restart}".rstrip(),
            script_bootstrap_action=emr.CfnCluster.ScriptBootstrapActionConfigProperty(
                path=f"s3://{script.bucket}/{script.key}",
                args=[self._release.parameter_name, Stack.of(self).region],
            ),
        )


def render_bootstrap() -> str:
    """Return the script of the bootstrap action; another text replaces every cluster on EMR."""
    programs = {"__FETCH_AGENT__": "fetch_agent.py", "__PREPARE_MEMBER__": "prepare_member.py"}
    texts = {placeholder: find_payload(name).read_text().rstrip("\n") for placeholder, name in programs.items()}
    return fill(_SCRIPT, find_payload(_SCRIPT).read_text(), texts)
