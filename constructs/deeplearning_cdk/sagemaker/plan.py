"""Plan of training jobs on SageMaker: values that follow from other values, checked before any construct is created."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from aws_cdk import Duration, Size
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.catalog.instance_catalog import (
    InstanceTypeFacts,
    NodeInstanceType,
    describe_instance_type,
    require_nvidia,
    without_efa,
)
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.training_image import choose_built_environment
from deeplearning_cdk.nodes.values import Software
from deeplearning_cdk.props.check import check_meaning, check_prop, is_token, show_value
from deeplearning_cdk.props.rules import between, count_gibibytes, lasting, matching, sized
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.cluster_storage import check_vpc_of_file_system
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_cdk.storage.lustre import LustreFileSystem
from deeplearning_cdk.storage.shared_file_system import FileSystemId, SharedFileSystem
from deeplearning_cdk.storage.values import Storage
from deeplearning_contract.jobs.training_job import AGENT_CHANNEL, MOST_CHANNELS, SHARED_CHANNEL, TYPE_PREFIX

DEFAULT_INSTANCE_TYPE = "g5.12xlarge"
DEFAULT_RUN = Duration.days(1)
_DEFAULT_GIBIBYTES = 100
_OWN_CHANNELS = (AGENT_CHANNEL, SHARED_CHANNEL)
_MOST_SOURCES = MOST_CHANNELS - len(_OWN_CHANNELS)

InstanceCount = Annotated[int, between(1, 256, "take fewer, with more GPUs each")]
"""Number of instances of a job that names none."""

ImageUri = Annotated[
    str,
    # SageMaker API reference, AlgorithmSpecification, TrainingImage; an image of another registry needs a function that
    # logs in (TrainingRepositoryConfig).
    matching(
        r"(?=.{1,255}$)[0-9]{12}\.dkr[.-]ecr(-fips)?\.[a-z0-9-]+\.[a-z0-9.-]+/[a-z0-9._/-]+"
        r"(:[A-Za-z0-9._-]{1,128})?(@sha256:[0-9a-f]{64})?",
        "be the URI of an image in Amazon ECR, of at most 255 characters",
        "push the image there, and write account.dkr.ecr.region.amazonaws.com/repository:tag",
        takes_tokens=True,
    ),
]
"""Image of the containers."""

InstanceVolume = Annotated[Size | int, sized(30, 16_384, "pass e.g. Size.gibibytes(200)")]
"""Size of the volume of each instance; a number is GiB."""

RunTime = Annotated[Duration, lasting("60 seconds", "28 days", "write e.g. Duration.hours(12)")]
"""Longest run of a job (SageMaker API reference, StoppingCondition)."""

PendingTime = Annotated[Duration, lasting("30 minutes", "28 days", "write e.g. Duration.hours(6)")]
"""Longest wait for capacity (SageMaker API reference, StoppingCondition)."""

WarmTime = Annotated[Duration, lasting("60 seconds", "6 hours", "write e.g. Duration.minutes(30)")]
"""Time for which instances wait for the next job (SageMaker API reference, ResourceConfig)."""

_WITHOUT_MEANING: Mapping[str, Mapping[str, str]] = {
    "network": {
        "master_subnet": "all containers are in network.worker_subnet",
        "isolated": "containers call S3 alone, so pass a network.vpc with a gateway endpoint and no other route",
        "efa": "the image of jobs has no EFA software, and NCCL uses TCP",
    },
    "software": {
        "image": "pass image, the URI of a container's image",
        "image_release": "an image is built again when its content changes",
        "environment_cache": "the environment is part of the image",
    },
}
"""Fields of values that SageMaker gives no meaning, each with the remedy."""


@dataclass(frozen=True)
class TrainingPlan:
    """Plan of training jobs."""

    facts: InstanceTypeFacts
    environment: JobEnvironment | None
    """Environment that is built into an image; None for an image of the user's."""
    volume_gibibytes: int
    """Volume of each instance; 0 for a type with disks of its own."""
    max_seconds: int
    max_wait_seconds: int
    max_pending_seconds: int
    keep_alive_seconds: int


def plan_training(
    *,
    instance_type: NodeInstanceType,
    image: str | None,
    volume_size: Size | int | None,
    max_run: Duration,
    spot_wait: Duration | None,
    max_pending: Duration | None,
    keep_warm: Duration | None,
    network: Network,
    software: Software,
    storage: Storage,
) -> TrainingPlan:
    """
    Derive type, environment, volume and limits of time from the user's values.

    Raises:
        ValueError: Two values contradict each other, or one has no meaning on SageMaker; the message names the prop,
            the rule and a way out.
    """
    check_meaning("SageMaker", "network", network, _WITHOUT_MEANING["network"])
    check_meaning("SageMaker", "software", software, _WITHOUT_MEANING["software"])
    check_vpc_of_file_system(network, storage)
    _check_mount(storage)
    _check_data(storage.data)
    facts = _choose_type(instance_type)
    _check_times(facts, max_run, spot_wait, max_pending, keep_warm)
    return TrainingPlan(
        facts=facts,
        environment=choose_built_environment(image, software.environment, facts, has_old_hosts=True),
        volume_gibibytes=_choose_volume(volume_size, facts),
        max_seconds=_count_seconds(max_run),
        max_wait_seconds=_count_seconds(spot_wait),
        max_pending_seconds=_count_seconds(max_pending),
        keep_alive_seconds=_count_seconds(keep_warm),
    )


def _count_seconds(time: Duration | None) -> int:
    return int(time.to_seconds()) if time else 0


def _check_times(
    facts: InstanceTypeFacts,
    max_run: Duration,
    spot_wait: Duration | None,
    max_pending: Duration | None,
    keep_warm: Duration | None,
) -> None:
    if spot_wait is not None and spot_wait.to_seconds() < max_run.to_seconds():
        raise ValueError(
            f"spot_wait must be at least max_run of {show_value(max_run)}, got {show_value(spot_wait)}; it includes "
            "the run, so raise it or lower max_run"
        )
    if spot_wait is not None and keep_warm is not None:
        raise ValueError(
            f"keep_warm must be left out with spot_wait, got {show_value(keep_warm)}; SageMaker keeps no spot "
            "instances, so leave one of them out"
        )
    if max_pending is not None and facts.accelerator is None:
        raise ValueError(
            f"max_pending must be left out for a type without accelerators, got {show_value(max_pending)} with "
            f"{facts.name}; SageMaker ignores it there"
        )


def _check_mount(storage: Storage) -> None:
    """Check that SageMaker can mount the file systems: it uses neither TLS nor IAM, and needs their ids."""
    shared, lustre = storage.file_system, storage.lustre
    if isinstance(shared, SharedFileSystem) and (shared.mode != "nfs4" or shared.access_point_id is not None):
        raise ValueError(
            "storage.file_system must be of mode nfs4 without an access point, because SageMaker mounts it without "
            "TLS and IAM, got another; take that of a cluster on Ubuntu, or a new one"
        )
    if isinstance(lustre, LustreFileSystem):
        check_prop("file system of storage.lustre", lustre.file_system_id, FileSystemId)


def _check_data(data: Sequence[DataSource]) -> None:
    for source in data:
        if source.is_archive:
            raise ValueError(
                f"storage.data must have no archives on SageMaker, which unpacks nothing, got {show_value(source.key)} "
                f"of {source.name}; upload its content below a prefix"
            )
        if source.name in _OWN_CHANNELS:
            raise ValueError(
                f"storage.data must not have the names {' and '.join(_OWN_CHANNELS)}, got {source.name!r}; rename it"
            )
    if len(data) > _MOST_SOURCES:
        raise ValueError(
            f"storage.data must have at most {_MOST_SOURCES} sources on SageMaker, got {len(data)}; declare a prefix "
            "that holds several of them"
        )


def _choose_type(instance_type: NodeInstanceType) -> InstanceTypeFacts:
    name = instance_type.to_string() if isinstance(instance_type, ec2.InstanceType) else instance_type
    if isinstance(name, str):
        name = name.removeprefix(TYPE_PREFIX)
    facts = describe_instance_type("instance_type", name)
    if facts.driver_branch is not None or facts.successor:
        raise ValueError(
            "instance_type must have GPUs that current images support, got "
            f"{facts.name}; take {facts.successor or DEFAULT_INSTANCE_TYPE}"
        )
    require_nvidia("SageMaker", facts, f"take {DEFAULT_INSTANCE_TYPE}")
    # Facts of the user's describe a type that may be newer than the list too.
    if isinstance(name, str) and f"{TYPE_PREFIX}{name}" not in read_training_types():
        sizes = [each.removeprefix(TYPE_PREFIX) for each in read_training_types()]
        near = [each for each in sizes if each.partition(".")[0] == facts.family] or [DEFAULT_INSTANCE_TYPE]
        raise ValueError(
            f"instance_type must be one of SageMaker's training jobs, got {facts.name}; take one of {', '.join(near)}"
        )
    return without_efa(facts)


@cache
def read_training_types() -> tuple[str, ...]:
    """Return the instance types of training jobs, by SageMaker's names."""
    return tuple(json.loads(Path(__file__).with_name("training_types.json").read_text()))


def _choose_volume(volume_size: Size | int | None, facts: InstanceTypeFacts) -> int:
    """SageMaker API reference, ResourceConfig: storage of a type with NVMe disks is fixed, and takes no key."""
    if not facts.has_local_disk:
        gibibytes = count_gibibytes(_DEFAULT_GIBIBYTES if volume_size is None else volume_size)
        return gibibytes if is_token(gibibytes) else int(gibibytes)  # type: ignore[return-value]
    if volume_size is not None:
        raise ValueError(
            f"volume_size must be left out for {facts.name}, got {show_value(volume_size)}; SageMaker uses its own "
            "disks, which have a fixed size"
        )
    return 0
