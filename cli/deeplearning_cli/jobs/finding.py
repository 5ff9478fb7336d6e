"""The cluster that takes a job, found by its submission document."""

import re
from collections.abc import Callable, Mapping

from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.errors import UnavailableError
from deeplearning_cli.jobs.ec2 import Ec2Platform
from deeplearning_cli.jobs.emr import EmrPlatform
from deeplearning_cli.jobs.kubernetes_jobs import KubernetesPlatform
from deeplearning_cli.jobs.platform import JobPlatform
from deeplearning_cli.jobs.sagemaker import SageMakerPlatform
from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.submission import SUBMISSION_PATH, Platform, SubmissionSettings

PLATFORMS: Mapping[Platform, Callable[[CloudAccess, SubmissionSettings], JobPlatform]] = {
    "ec2": Ec2Platform,
    "emr": EmrPlatform,
    "sagemaker": SageMakerPlatform,
    "eks": KubernetesPlatform,
}
"""Platform of a submission document -> its jobs."""
_DOCUMENT = re.compile(rf"{SUBMISSION_PATH}/(?P<stack>.+)-[0-9a-f]{{8}}/submission")
"""Name of a submission document; an account may have other parameters below the same path."""


def find_platform(access: CloudAccess) -> JobPlatform:
    """
    Return the cluster of the stack that `access` names, or the region's only one.

    Raises:
        UnavailableError: The documents cannot be read, none fits, or several do.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow

    try:
        pages = (
            access.clients("ssm").get_paginator("get_parameters_by_path").paginate(Path=SUBMISSION_PATH, Recursive=True)
        )
        found = {str(entry["Name"]): str(entry["Value"]) for page in pages for entry in page["Parameters"]}
    except (BotoCoreError, ClientError) as error:
        raise UnavailableError(
            f"could not read the submission documents: {error}; the caller needs ssm:GetParametersByPath on "
            f"{SUBMISSION_PATH}, which the cluster's grant_submit grants"
        ) from error
    stacks = {name: match["stack"] for name in found if (match := _DOCUMENT.fullmatch(name))}
    fitting = [name for name, stack in stacks.items() if access.stack in (None, stack)]
    if len(fitting) == 1:
        try:
            settings = SubmissionSettings.from_json(found[fitting[0]])
        except ContractError as error:
            raise UnavailableError(
                f"parameter {fitting[0]} cannot be read: {error}; use the release of deeplearning-cdk that deployed it"
            ) from error
        return PLATFORMS[settings.platform](access, settings)
    names = ", ".join(sorted(stacks.values())) or "none"
    if not fitting:
        raise UnavailableError(
            f"stack must be one that takes jobs in {access.region}, got {access.stack or 'none'}; there are: {names}"
        )
    raise UnavailableError(f"stack must be named, got none and {len(fitting)} clusters; there are: {names}")
