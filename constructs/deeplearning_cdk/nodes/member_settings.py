"""Settings of a member: a node of a platform without the queues, the state table and the log group of EC2."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.network.interfaces import describe_hardware
from deeplearning_cdk.nodes.programs import describe_environment
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import (
    SYSTEM_PYTHON,
    DataSettings,
    EnvironmentSettings,
    FileSystemSettings,
    JobNeeds,
)
from deeplearning_contract.settings import NodeSettings

CONTAINER_USER = "root"
"""User of containers."""
_CONTAINER_SECONDS = 15 * 60
"""Time from a container's start to the membership."""


def describe_member(
    facts: InstanceTypeFacts,
    *,
    login_user: str,
    file_system: FileSystemSettings,
    setup_seconds: int,
    data: Sequence[DataSettings],
    environment: EnvironmentSettings | None,
    cluster: str = "",
    region: str = "",
    packages: Mapping[str, tuple[str, ...]] | None = None,
    stop_after_seconds: int = 0,
    lustre: FileSystemSettings | None = None,
    event_cluster: str = "",
) -> NodeSettings:
    """
    Return the settings of a member.

    Args:
        facts: The instance type of all members.
        login_user: User under whom jobs run.
        file_system: Mount of the shared file system.
        setup_seconds: Time from the first start to the membership.
        data: Data in S3 for jobs.
        environment: Software environment of jobs; None for the image's own.
        cluster: The cluster's name. Default: the member finds it.
        region: The region. Default: the member finds it.
        packages: Packages that the member installs. Default: none.
        stop_after_seconds: Time after which the first member ends the cluster. Default: never.
        lustre: Mount of FSx for Lustre. Default: none.
        event_cluster: Cluster whose events the members of a failed job send. Default: they send none.
    """
    hardware = describe_hardware(facts)
    return NodeSettings(
        cluster=cluster,
        # The agent replaces it by the role that the platform gave to the member.
        role=NodeRole.WORKER,
        region=region,
        state_table="",
        master_queue_url="",
        worker_queue_url="",
        report_queue_url="",
        report_sender="",
        signal_url="",
        login_user=login_user,
        file_system=file_system,
        expected_gpu_count=hardware.gpu_count,
        packages=packages or {},
        setup_seconds=setup_seconds,
        stop_after_seconds=stop_after_seconds,
        event_cluster=event_cluster,
        needs=JobNeeds(
            hardware={role.value: hardware for role in NodeRole},
            data=tuple(data),
            environment=environment,
            lustre=lustre,
        ),
    )


def describe_container(
    facts: InstanceTypeFacts,
    *,
    file_system: FileSystemSettings,
    data: Sequence[DataSource],
    environment: JobEnvironment | None,
    event_cluster: str = "",
) -> NodeSettings:
    """Return the settings of a container, which contain no tokens; its platform brings the shared file system."""
    return describe_member(
        facts,
        login_user=CONTAINER_USER,
        file_system=file_system,
        setup_seconds=_CONTAINER_SECONDS,
        data=[replace(source.settings, bucket="") for source in data],
        environment=describe_environment(environment, None, None, SYSTEM_PYTHON),
        event_cluster=event_cluster,
    )
