"""Platforms that run jobs: the interface of `submit`, `plan`, `jobs`, `logs` and `stop`, and what they share."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.errors import UnavailableError
from deeplearning_cli.jobs.definition import JobFile, pack
from deeplearning_cli.jobs.output import JobOutput, print_progress
from deeplearning_cli.jobs.source_folder import describe_left_out
from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SubmissionSettings, make_agent_copy
from deeplearning_contract.setting_parts import ScriptSettings

LIVE_STATES = ("running", "retrying")
"""States of a job whose ranks run, or are about to run again."""
ENDED_STATES = ("succeeded", "failed", "stopped", "lost")
"""States of a job that has ended."""


@dataclass(frozen=True)
class Started:
    """The job runs."""


@dataclass(frozen=True)
class Refused:
    """The job does not run; its output has the reason."""

    status: int  # Exit status


@dataclass(frozen=True)
class Queued:
    """The job starts after others."""

    reason: str  # Sentence for the user
    await_start: Callable[[], Started | Refused]  # Waits for the start; the output is that of `start`


class JobPlatform(Protocol):
    """
    Cluster that takes jobs, on a service of AWS.

    Each method raises UnavailableError if the cluster cannot be reached.
    """

    @property
    def access(self) -> CloudAccess:
        """Access to the cluster's account."""

    @property
    def settings(self) -> SubmissionSettings:
        """The cluster's submission document."""

    def check(self, job: JobDefinition) -> None:
        """Raise UnavailableError for a job that the platform does not take."""

    def plan(self, job: JobDefinition, on_line: Callable[[str], None], *, as_json: bool) -> int:
        """Print the plan of a job, and return 0, 1 if the job would be refused now, or 2 without a plan."""

    def start(self, job: JobDefinition, on_line: Callable[[str], None]) -> Started | Queued | Refused:
        """Start a job whose source is uploaded; return when it runs, waits for others, or is refused."""

    def follow(
        self, name: str, output: JobOutput, *, rank: str | None = None, lines: int | None = None, to_end: bool = True
    ) -> int:
        """
        Print the output of a job's newest run, and return 0, or 2 if there is none.

        Args:
            name: Name of the job.
            output: Where to print it.
            rank: Rank whose output it is. Default: 0.
            lines: Most lines of the output so far. Default: as `deeplearning logs`.
            to_end: Whether to return at the end of the run. Default: true; else after the output so far.
        """

    def stop(self, name: str, on_line: Callable[[str], None]) -> int:
        """End a job, and return 0, 1 if a part of it may be left, or 2 without such a job."""

    def list_jobs(self) -> list[dict[str, Any]]:
        """Return the jobs with the states of their newest runs, and the keys of `deeplearning jobs --json`."""


@dataclass(frozen=True)
class StackJobs:
    """
    Jobs of a stack; the base of its platforms.

    Attributes:
        access: Access to its account.
        settings: Its submission document.
    """

    access: CloudAccess
    settings: SubmissionSettings


def upload_files(file: JobFile, platform: JobPlatform) -> JobDefinition:
    """
    Upload what a job reads, unless the platform refuses the job; return the job with its source.

    That is the source folder, if there is one, and where the platform fetches the programs of nodes for each job, a
    copy of these that no deployment replaces.
    """
    job = _upload_source(file, platform)
    if (copy := make_agent_copy(platform.settings)) is not None:
        source = copy["CopySource"]
        with _use_store(
            platform.access, "could not copy the programs of jobs", f"s3:GetObject on {source['Key']}"
        ) as store:
            store.copy_object(**copy)
    return job


def _upload_source(file: JobFile, platform: JobPlatform) -> JobDefinition:
    if file.source is None:
        platform.check(file.job)
        return file.job
    packed, settings = pack(file.source), platform.settings
    source = ScriptSettings(settings.bucket, f"{settings.prefix}{packed.sha256}.tar.gz", packed.sha256)
    job = replace(file.job, source=source)
    platform.check(job)
    print_progress(f"source: {packed.files} files, {len(packed.content) / 1000:.0f} kB, {packed.sha256[:16]}")
    if packed.left_out:
        print_progress(f"left out of the source: {describe_left_out(packed.left_out)}")
    place = f"s3://{source.bucket}/{source.key}"
    with _use_store(platform.access, f"could not upload the source to {place}", "s3:PutObject there") as store:
        store.put_object(Bucket=source.bucket, Key=source.key, Body=packed.content)
    return job


@contextlib.contextmanager
def _use_store(access: CloudAccess, failure: str, right: str) -> Iterator[Any]:
    """Lend the client of S3; UnavailableError with what failed, and the right that may be missing."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow

    try:
        yield access.clients("s3")
    except (BotoCoreError, ClientError) as error:
        raise UnavailableError(
            f"{failure}: {error}; the caller needs {right}, which the cluster's grant_submit grants"
        ) from error


def find_job(platform: JobPlatform, name: str) -> dict[str, Any]:
    """Return a job as `list_jobs` does; UnavailableError without it."""
    job = next((job for job in platform.list_jobs() if job["name"] == name), None)
    if job is None:
        raise UnavailableError(f"job {name} must be listed, got none; see: deeplearning-cdk jobs")
    return job


def describe(platform: JobPlatform, **more: Any) -> str:
    """Return the JSON object with which a command about a cluster ends with `--json`."""
    settings = platform.settings
    return json.dumps({"platform": settings.platform, "cluster": settings.cluster, **more}, indent=2)


def print_plan(
    job: JobDefinition,
    hosts: int,
    slots: int,
    on_line: Callable[[str], None],
    *,
    lines: Sequence[str],
    document: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Print the ranks of a job, and the lines of what starts it; as JSON, the document of it."""
    ranks = job.ranks or hosts * slots
    if as_json:
        plan = {"launcher": job.launcher, "ranks": ranks, "hosts": hosts, "slots": slots, **document}
        printed = json.dumps(plan, indent=2).splitlines()
    else:
        printed = [f"job {job.name} with {job.launcher}: {ranks} ranks = {hosts} hosts x {slots}", *lines]
    for line in printed:
        on_line(line)


def require_first_rank(service: str, name: str, rank: str | None) -> None:
    """Raise UnavailableError for the log of another rank than the first, which a service does not have."""
    if rank not in (None, "0"):
        raise UnavailableError(
            f"--rank must be 0 on {service}, got {rank}; the logs of other ranks are on the shared file system, "
            f"in jobs/{name}/runs"
        )


@contextlib.contextmanager
def map_contract_errors() -> Iterator[None]:
    """Raise UnavailableError for what the contract refuses."""
    try:
        yield
    except ContractError as error:
        raise UnavailableError(str(error)) from error
