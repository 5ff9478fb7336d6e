"""All platforms, and the one of a template."""

from collections.abc import Mapping
from typing import Any

from deeplearning_contract.jobs.submission import Platform as PlatformName
from deeplearning_rehearsal.platforms.ec2 import Ec2Platform
from deeplearning_rehearsal.platforms.eks import EksPlatform
from deeplearning_rehearsal.platforms.emr import EmrPlatform
from deeplearning_rehearsal.platforms.platform import ClusterPlatform, Platform
from deeplearning_rehearsal.platforms.sagemaker import SageMakerPlatform

CLUSTER_PLATFORMS: Mapping[PlatformName, ClusterPlatform] = {"ec2": Ec2Platform(), "emr": EmrPlatform()}
PLATFORMS: Mapping[PlatformName, Platform] = {
    **CLUSTER_PLATFORMS,
    "sagemaker": SageMakerPlatform(),
    "eks": EksPlatform(),
}


def find_platform(template: Mapping[str, Any]) -> Platform:
    """Return the platform of a template's cluster; EC2 without any."""
    return next((each for each in PLATFORMS.values() if each.owns(template)), PLATFORMS["ec2"])
