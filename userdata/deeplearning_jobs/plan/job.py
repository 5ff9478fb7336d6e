"""A job during planning: request, hosts, variables, and the contribution of a launcher."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.names import DATA_DIRECTORY, JOBS_FOLDER, METRICS_PATH_VARIABLE
from deeplearning_jobs.plan.launch_plan import Host, JobRequest, PartReason, PlanError, Process
from deeplearning_jobs.plan.topology import Layout

JOB_VARIABLE = "DEEPLEARNING_JOB"
RANK_VARIABLE = "DEEPLEARNING_RANK"
TASK_VARIABLE = "DEEPLEARNING_TASK"
CHECKPOINT_VARIABLE = "DEEPLEARNING_CHECKPOINT_PATH"
RESUME_VARIABLE = "DEEPLEARNING_RESUME_FROM"
DATA_VARIABLE = "DEEPLEARNING_DATA"
UNBUFFERED_VARIABLE = "PYTHONUNBUFFERED"
METRICS_FILE = "metrics.json"
"""File in the run's folder that a program may write on rank 0."""
RANK, START, SSH, ADDRESSES, HOSTFILE = "rank", "start", "bin/ssh", "addresses", "hostfile"
"""Scripts and files of a run, below its folder."""

_FOLDER = re.compile(rf"(?P<mount>/.*)/{JOBS_FOLDER}/(?P<job>[^/\s]+)/runs/(?P<run>[^/\s]+)")


@dataclass(frozen=True)
class Job:
    """Request of a job, and the hosts that take part."""

    request: JobRequest
    layout: Layout

    @property
    def definition(self) -> JobDefinition:
        """The job, as this run starts it."""
        return self.request.definition

    @property
    def master(self) -> Host:
        """The cluster's master, on which central launchers run."""
        return self.layout.master

    @property
    def first(self) -> Host:
        """The host of rank 0, where all ranks meet."""
        return self.layout.hosts[0]

    @property
    def is_on_one_host(self) -> bool:
        """True when launcher and ranks are on one host for the life of the job."""
        return self.layout.hosts == (self.master,) and not self.definition.elastic

    def path(self, name: str) -> str:
        """Return the path of a file in the run's folder."""
        return f"{self.request.folder}/{name}"

    @cached_property
    def _folder(self) -> re.Match[str]:
        found = _FOLDER.fullmatch(self.request.folder)
        if found is None:
            raise PlanError(
                f"the run's folder must be <mount>/{JOBS_FOLDER}/<job>/runs/<number>, got {self.request.folder!r}; "
                "give the job a --name without spaces"
            )
        return found

    @property
    def name(self) -> str:
        """Value of `DEEPLEARNING_JOB`, the mark of the run's processes on every host."""
        return f"{self._folder['job']}/{self._folder['run']}"

    @property
    def mount_point(self) -> str:
        """Mount point of the shared file system."""
        return self._folder["mount"]

    @cached_property
    def variables(self) -> Mapping[str, str]:
        """The variables of every process: the job's own, then the user's."""
        own = {
            JOB_VARIABLE: self.name,
            CHECKPOINT_VARIABLE: str(PurePosixPath(self.request.folder).parents[1] / "checkpoints"),
            RESUME_VARIABLE: "",
            DATA_VARIABLE: DATA_DIRECTORY,
            METRICS_PATH_VARIABLE: self.path(METRICS_FILE),
            UNBUFFERED_VARIABLE: "1",
        }
        return {**own, **self.definition.env}


@dataclass(frozen=True)
class Part:
    """Words of a command line that belong together, and their reason; empty for none."""

    words: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True)
class Draft:
    """A launcher's contribution to a plan."""

    processes: tuple[Process, ...]  # In the order of their start
    reasons: tuple[PartReason, ...]  # Of command lines and variables
    rank_zero_log: str  # Path of the log of rank 0
    # Path -> text, beside the scripts that every run has. Default: none.
    files: Mapping[str, str] = field(default_factory=dict)
    rank_lines: tuple[str, ...] = ()  # Lines of shell that the rank script runs before the program. Default: none.


def join_parts(parts: list[Part]) -> tuple[str, ...]:
    """Return the command line."""
    return tuple(word for part in parts for word in part.words)


def explain_parts(parts: list[Part]) -> tuple[PartReason, ...]:
    """Return the reasons of a command line, in its order."""
    return tuple(PartReason(shlex.join(part.words), part.why) for part in parts if part.why)
