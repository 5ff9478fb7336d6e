"""The API of training jobs in front of the driver, with the refusals of AWS."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import moto.sagemaker.urls
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult

from cdk_rehearsal.embedded_aws.base.stand_in_api import StandInApi
from cdk_rehearsal.embedded_aws.sagemaker.driver import TrainingDriver
from cdk_rehearsal.embedded_aws.sagemaker.job import TrainingJob
from cdk_rehearsal.embedded_aws.sagemaker.provisioning import SERVICE, ResourceLimitError
from cdk_rehearsal.embedded_aws.sagemaker.request import check_request

_PAGE = 10
"""Jobs of a page of ListTrainingJobs without MaxResults (API reference)."""


class TrainingError(ServiceException):
    """An error of SageMaker."""


class TrainingApi(StandInApi):
    """Operations on training jobs."""

    service = "sagemaker"
    error = TrainingError
    driver: ClassVar[TrainingDriver]

    def create_training_job(self) -> ActionResult:
        request = _plain(self._get_params())
        try:
            check_request(request)
            self._check_role(str(request["RoleArn"]), str(request["TrainingJobName"]))
            self.driver.provisioner.check_sources(request)
        except ValueError as error:
            raise TrainingError("ValidationException", str(error)) from error
        except ResourceLimitError as error:
            raise TrainingError("ResourceLimitExceeded", str(error)) from error
        job = self.driver.run(request)
        if job is None:
            raise TrainingError("ResourceInUse", "Training job names must be unique within an AWS account and region")
        return ActionResult({"TrainingJobArn": job.arn})

    def describe_training_job(self) -> ActionResult:
        return ActionResult(self._find().to_api())

    def list_training_jobs(self) -> ActionResult:
        wanted, status = str(self._get_param("NameContains") or ""), self._get_param("StatusEquals")
        is_ascending = self._get_param("SortOrder") == "Ascending"
        key = "name" if self._get_param("SortBy") == "Name" else "created"
        found = sorted(
            (job for job in self.driver.jobs() if wanted in job.name and status in (None, job.status)),
            key=lambda job: getattr(job, key),
            reverse=not is_ascending,
        )
        start, most = int(self._get_param("NextToken") or 0), int(self._get_param("MaxResults") or _PAGE)
        rows = [
            {
                "TrainingJobName": job.name,
                "TrainingJobArn": job.arn,
                "CreationTime": job.created,
                "TrainingJobStatus": job.status,
            }
            for job in found[start : start + most]
        ]
        more = {"NextToken": str(start + most)} if start + most < len(found) else {}
        return ActionResult({"TrainingJobSummaries": rows, **more})

    def stop_training_job(self) -> ActionResult:
        job = self._find()
        if job.has_ended:
            raise TrainingError(
                "ValidationException", f"The request was rejected because the training job is in status {job.status}."
            )
        job.is_stopped.set()
        return EmptyResult()

    def _check_role(self, role: str, name: str) -> None:
        if not self.driver.gatekeeper.trusts(role, SERVICE, self.driver.name_arn(name)):
            raise ValueError(
                f"Could not assume role {role}. Please ensure that the role exists and allows principal '{SERVICE}' to "
                "assume the role."
            )

    def _find(self) -> TrainingJob:
        job = self.driver.find(str(self._get_param("TrainingJobName")))
        if job is None:
            raise TrainingError("ValidationException", "Requested resource not found.")
        return job


def install_training_api(driver: TrainingDriver) -> None:
    """Replace moto's API with one for the jobs of a driver."""
    TrainingApi.driver = driver
    TrainingApi.install(moto.sagemaker.urls.url_paths)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items() if entry is not None}
    return [_plain(entry) for entry in value] if isinstance(value, Iterable) and not isinstance(value, str) else value
