"""Plan of training jobs: values that follow from other values, checked before any construct is created."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from aws_cdk import Duration, Size, Token

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts, NodeInstanceType, describe_instance_type
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.environment_choice import choose_environment
from deeplearning_cdk.nodes.training_image import DEFAULT_BASE
from deeplearning_cdk.nodes.values import Software
from deeplearning_cdk.props.check import check_meaning, show_value
from deeplearning_cdk.props.rules import between, count_gibibytes, lasting, matching, sized
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_cdk.storage.values import Storage
from deeplearning_contract.jobs.training_job import AGENT_CHANNEL, MOST_CHANNELS, SHARED_CHANNEL, TYPE_PREFIX
from deeplearning_contract.setting_parts import SYSTEM_PYTHON

DEFAULT_INSTANCE_TYPE = "g5.12xlarge"
DEFAULT_GIBIBYTES = 100
DEFAULT_RUN = Duration.days(1)
_OWN_CHANNELS = (AGENT_CHANNEL, SHARED_CHANNEL)
_BUILT_KINDS = ("horovod", "requirements")

MemberCount = Annotated[int, between(1, 256, "take fewer")]
"""Instances of a job."""

ImageUri = Annotated[
    str,
    matching(
        r"[a-zA-Z0-9][a-zA-Z0-9./_:@-]{0,254}",
        "be the URI of an image, 255 characters at most",
        "copy it from Amazon ECR",
        takes_tokens=True,
    ),
]
"""Image of the containers (SageMaker API reference, AlgorithmSpecification)."""

VolumeSize = Annotated[Size | int, sized(30, 16_384, "pass e.g. Size.gibibytes(200)")]
"""Volume of an instance; a number is GiB."""

RunTime = Annotated[Duration, lasting("1 minutes", "28 days", "write e.g. Duration.days(2)")]
"""Longest time of a training job (SageMaker API reference, StoppingCondition)."""

PendingTime = Annotated[Duration, lasting("30 minutes", "28 days", "write e.g. Duration.hours(12)")]
"""Longest wait for capacity (SageMaker API reference, StoppingCondition)."""

WarmTime = Annotated[Duration, lasting("1 minutes", "6 hours", "write e.g. Duration.minutes(30)")]
"""Time of a warm pool (SageMaker API reference, ResourceConfig)."""

_WITHOUT_MEANING: Mapping[str, Mapping[str, str]] = {
    "network": {
        "master_subnet": "all containers are in network.worker_subnet",
        "isolated": "the subnet needs a route to S3 alone; pass a VPC without other routes",
        "efa": "SageMaker attaches EFA to the types that support it",
    },
    "software": {
        "image": "pass image to SageMakerTraining, the URI of a container image",
        "image_release": "a container image has its own tag or digest",
        "environment_cache": "the image contains the environment",
    },
}
"""Fields of values that SageMaker gives no meaning, each with the remedy."""


@dataclass(frozen=True)
class TrainingPlan:
    """Plan of the training jobs of a stack."""

    facts: InstanceTypeFacts
    gibibytes: int
    """Volume of each instance; 0 for a type whose instance store has a fixed size."""
    environment: JobEnvironment | None
    """Environment that the image is built with; None for an image of the user's."""


def plan_training(
    *,
    instance_type: NodeInstanceType,
    image: str | None,
    volume_size: Size | int | None,
    max_run: Duration,
    spot_wait: Duration | None,
    keep_warm: Duration | None,
    max_pending: Duration | None,
    network: Network,
    software: Software,
    storage: Storage,
) -> TrainingPlan:
    """
    Derive type, volume and environment from the user's values.

    Raises:
        ValueError: Two values contradict each other, or one has no meaning on SageMaker; the message names the prop,
            the rule and a way out.
    """
    check_meaning("SageMaker", "network", network, _WITHOUT_MEANING["network"])
    check_meaning("SageMaker", "software", software, _WITHOUT_MEANING["software"])
    _check_times(max_run, spot_wait, keep_warm)
    _check_data(storage.data)
    facts = _describe_type(instance_type)
    if max_pending is not None and facts.accelerator is None:
        raise ValueError(
            f"max_pending must be left out for a type without accelerators, got it with {facts.name}; SageMaker lets "
            "only accelerated types wait"
        )
    return TrainingPlan(facts, _choose_volume(facts, volume_size), _choose_environment(facts, image, software))


def _describe_type(instance_type: NodeInstanceType) -> InstanceTypeFacts:
    if isinstance(instance_type, str) and not Token.is_unresolved(instance_type):
        instance_type = instance_type.removeprefix(TYPE_PREFIX)
    facts = describe_instance_type("instance_type", instance_type)
    if facts.driver_branch is not None or facts.successor:
        raise ValueError(
            f"instance_type must have GPUs that current frameworks support, got {facts.name}; take "
            f"{facts.successor or DEFAULT_INSTANCE_TYPE}"
        )
    if facts.accelerator not in (None, "NVIDIA"):
        raise ValueError(
            f"instance_type must have NVIDIA GPUs or no accelerators on SageMaker, got {facts.name} with those of "
            f"{facts.accelerator}; take {DEFAULT_INSTANCE_TYPE}"
        )
    if facts.name not in read_training_types():
        others = [name for name in sorted(read_training_types()) if name.startswith(f"{facts.family}.")]
        raise ValueError(
            f"instance_type must be one of SageMaker's training jobs, got {facts.name}; take "
            f"{', '.join(others) or DEFAULT_INSTANCE_TYPE}"
        )
    return facts


def _check_times(max_run: Duration, spot_wait: Duration | None, keep_warm: Duration | None) -> None:
    if spot_wait is None:
        return
    if spot_wait.to_seconds() < max_run.to_seconds():
        raise ValueError(
            f"spot_wait must be at least max_run, got {spot_wait.to_human_string()} < {max_run.to_human_string()}; "
            "it contains the run: raise it, or lower max_run"
        )
    if keep_warm is not None:
        raise ValueError(
            "keep_warm must be left out with spot_wait, got both; SageMaker keeps no instances on spot capacity: leave "
            "one of them out"
        )


def _check_data(data: Sequence[DataSource]) -> None:
    if len(data) > (most := MOST_CHANNELS - len(_OWN_CHANNELS)):
        raise ValueError(
            f"storage.data must have at most {most} sources on SageMaker, whose jobs have {MOST_CHANNELS} channels, "
            f"got {len(data)}; put several below one prefix"
        )
    for source in data:
        if source.is_archive:
            raise ValueError(
                f"data key must be a prefix on SageMaker, which unpacks nothing, got {show_value(source.key)}; upload "
                "its content below a prefix"
            )
        if source.name in _OWN_CHANNELS:
            raise ValueError(f"data name must not be {source.name} on SageMaker, got it; rename the source")


def _choose_volume(facts: InstanceTypeFacts, volume_size: Size | int | None) -> int:
    if not facts.has_local_disk:
        return int(count_gibibytes(DEFAULT_GIBIBYTES if volume_size is None else volume_size))
    if volume_size is not None:
        raise ValueError(
            f"volume_size must be left out for {facts.name}, whose instance store has a fixed size, got "
            f"{count_gibibytes(volume_size):g} GiB; leave it out"
        )
    return 0


def _choose_environment(facts: InstanceTypeFacts, image: str | None, software: Software) -> JobEnvironment | None:
    if image is not None:
        if software.environment is not None:
            raise ValueError(
                "software.environment must be left out with image, got both; the image contains the environment"
            )
        return None
    chosen = choose_environment(software.environment, None, (facts,), DEFAULT_BASE, SYSTEM_PYTHON, isolated=False)
    if chosen is None or chosen.kind not in _BUILT_KINDS:
        kind = "none" if chosen is None else chosen.kind
        raise ValueError(
            f"software.environment must be Horovod's or a requirements file on SageMaker, got kind {kind}; leave it "
            "out, or pass the URI of an image of your own as image"
        )
    return chosen


@cache
def read_training_types() -> frozenset[str]:
    """Return the instance types of training jobs, by EC2's names."""
    document = json.loads((Path(__file__).parent / "training_types.json").read_text())
    return frozenset(document["types"])
