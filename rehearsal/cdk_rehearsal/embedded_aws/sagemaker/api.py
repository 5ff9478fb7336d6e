"""The API of training jobs in front of the driver, with the refusals of AWS."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import moto.sagemaker.urls
from moto.core.responses import ActionResult, EmptyResult
from moto.sagemaker.exceptions import AWSValidationException, SagemakerClientError

from cdk_rehearsal.embedded_aws.base.stand_in_api import StandInApi
from cdk_rehearsal.embedded_aws.sagemaker.driver import TrainingDriver
from cdk_rehearsal.embedded_aws.sagemaker.job import TrainingJob
from cdk_rehearsal.embedded_aws.sagemaker.request import RequestError

_PAGE, _MOST = 10, 100
_LIST_FIELDS = {"NameContains", "StatusEquals", "SortBy", "SortOrder", "NextToken", "MaxResults"}
_ORDERS: Mapping[str, Callable[[TrainingJob], Any]] = {
    "Name": lambda job: job.name,
    "CreationTime": lambda job: job.created,
    "Status": lambda job: job.status,
}
_MOST_TAGS = 50


class TrainingApi(StandInApi):
    """Operations on training jobs."""

    service = "sagemaker"
    error = AWSValidationException
    driver: ClassVar[TrainingDriver]

    def create_training_job(self) -> ActionResult:
        try:
            job = self.driver.create(self._read())
        except RequestError as error:
            raise SagemakerClientError(error.code, str(error)) from error
        return ActionResult({"TrainingJobArn": job.arn})

    def describe_training_job(self) -> ActionResult:
        return ActionResult(self._find().to_api())

    def list_training_jobs(self) -> ActionResult:
        """
        List jobs.

        The model documents an ascending order as the default, though its own example shows the newest first: a client
        that relies on an order must name it.
        """
        request = self._read()
        if unread := sorted(set(request) - _LIST_FIELDS):
            raise AWSValidationException(f"the rehearsal does not act upon {', '.join(unread)} of ListTrainingJobs")
        order, direction = request.get("SortBy", "CreationTime"), request.get("SortOrder", "Ascending")
        if order not in _ORDERS or direction not in ("Ascending", "Descending"):
            raise AWSValidationException(f"SortBy and SortOrder must be values of the model, got {order}, {direction}")
        jobs = sorted(self.driver.jobs.values(), key=_ORDERS[order], reverse=direction == "Descending")
        jobs = [job for job in jobs if request.get("NameContains", "") in job.name]
        status = request.get("StatusEquals")
        # With MaxResults, a page is taken before its jobs are filtered (SageMaker API reference, ListTrainingJobs).
        wanted = [job for job in jobs if status in (None, job.status) or "MaxResults" in request]
        page, more = _cut(request, wanted)
        rows = [job.summarize() for job in page if status in (None, job.status)]
        return ActionResult({"TrainingJobSummaries": rows, **more})

    def stop_training_job(self) -> EmptyResult:
        self._act(self.driver.stop)
        return EmptyResult()

    def delete_training_job(self) -> EmptyResult:
        self._act(self.driver.delete)
        return EmptyResult()

    def add_tags(self) -> ActionResult:
        job, new = self._find_tagged(), {tag["Key"]: tag["Value"] for tag in self._read()["Tags"]}
        with job.lock:
            if len(job.tags | new) > _MOST_TAGS:
                raise AWSValidationException(f"Tags must be at most {_MOST_TAGS} of a resource")
            job.tags |= new
            return ActionResult({"Tags": _list_tags(job.tags)})

    def list_tags(self) -> ActionResult:
        page, more = _cut(self._read(), _list_tags(self._find_tagged().tags), _MOST_TAGS)
        return ActionResult({"Tags": page, **more})

    def _act(self, act: Callable[[TrainingJob], None]) -> None:
        try:
            act(self._find())
        except RequestError as error:
            raise SagemakerClientError(error.code, str(error)) from error

    def _read(self) -> dict[str, Any]:
        """Return the request as it was sent; moto's own reading drops what the model lacks."""
        request: dict[str, Any] = json.loads(self.body or "{}")
        return request

    def _find(self) -> TrainingJob:
        """Find a job; AWS answers ValidationException, and never the model's ResourceNotFound (aws/aws-sdk#165)."""
        job = self.driver.jobs.get(str(self._read().get("TrainingJobName")))
        if job is None:
            raise AWSValidationException("Requested resource not found.")
        return job

    def _find_tagged(self) -> TrainingJob:
        job = self.driver.find(str(self._read().get("ResourceArn")))
        if job is None:
            raise AWSValidationException("Requested resource not found.")
        return job


def install_training_api(driver: TrainingDriver) -> None:
    """Replace moto's API with one for the jobs of a driver."""
    TrainingApi.driver = driver
    TrainingApi.install(moto.sagemaker.urls.url_paths)


def _cut(request: Mapping[str, Any], rows: Sequence[Any], page: int = _PAGE) -> tuple[Sequence[Any], dict[str, str]]:
    """Return a page of rows, and the token of the next one."""
    size, token = request.get("MaxResults", page), request.get("NextToken", "0")
    if not 1 <= size <= _MOST:
        raise AWSValidationException(f"MaxResults must be 1 to {_MOST}, got {size}")
    if not token.isdecimal():
        raise AWSValidationException("NextToken is not valid")
    begin = int(token)
    return rows[begin : begin + size], {"NextToken": str(begin + size)} if len(rows) > begin + size else {}


def _list_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
