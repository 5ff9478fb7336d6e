"""Settings of the members of a cluster without a state table, on EMR and on SageMaker."""

from collections.abc import Mapping

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.network.interfaces import describe_hardware
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import (
    DataSettings,
    EnvironmentSettings,
    FileSystemSettings,
    JobNeeds,
)
from deeplearning_contract.settings import NodeSettings


def describe_member(
    facts: InstanceTypeFacts,
    *,
    cluster: str,
    region: str,
    login_user: str,
    file_system: FileSystemSettings,
    packages: Mapping[str, tuple[str, ...]],
    setup_seconds: int,
    data: tuple[DataSettings, ...],
    environment: EnvironmentSettings | None,
    lustre: FileSystemSettings | None = None,
    stop_after_seconds: int = 0,
) -> NodeSettings:
    """Return the settings of a member, which has no queues; the service says at its start which role it has."""
    hardware = describe_hardware(facts)
    return NodeSettings(
        cluster=cluster,
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
        packages=packages,
        setup_seconds=setup_seconds,
        stop_after_seconds=stop_after_seconds,
        needs=JobNeeds(
            hardware={role.value: hardware for role in NodeRole}, data=data, environment=environment, lustre=lustre
        ),
    )
