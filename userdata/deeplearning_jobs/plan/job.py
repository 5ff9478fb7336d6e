"""A job while its plan is made: what was asked for, the hosts, the variables, and what a launcher contributes."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from deeplearning_contract.names import DATA_DIRECTORY, JOBS_FOLDER, METRICS_PATH_VARIABLE
from deeplearning_jobs.plan.launch_plan import Host, JobRequest, PlanError, Process, Reason
from deeplearning_jobs.plan.topology import Layout

JOB_VARIABLE = "DEEPLEARNING_JOB"
RANK_VARIABLE = "DEEPLEARNING_RANK"
TASK_VARIABLE = "DEEPLEARNING_TASK"
CHECKPOINT_VARIABLE = "DEEPLEARNING_CHECKPOINT_PATH"
RESUME_VARIABLE = "DEEPLEARNING_RESUME_FROM"
DATA_VARIABLE = "DEEPLEARNING_DATA"
UNBUFFERED_VARIABLE = "PYTHONUNBUFFERED"
METRICS_FILE = "metrics.json"
"""In the run's folder; a program may write it on rank 0."""
RANK, START, SSH, ADDRESSES = "rank", "start", "bin/ssh", "addresses"
"""Scripts and files of a run, below its folder."""

_FOLDER = re.compile(rf"(?P<mount>/.*)/{JOBS_FOLDER}/(?P<job>[^/\s]+)/runs/(?P<run>[^/\s]+)")


@dataclass(frozen=True)
class Job:
    """
    What launchers make their part of a plan from.

    Attributes:
        request: What the user asks for.
        layout: The hosts that take part, and ranks a host.
    """

    request: JobRequest
    layout: Layout

    @property
    def master(self) -> Host:
        """The cluster's master, on which the launchers of Horovod and MPI run."""
        return self.layout.master

    @property
    def first(self) -> Host:
        """The host of rank 0, where all ranks meet."""
        return self.layout.hosts[0]

    @property
    def is_on_one_host(self) -> bool:
        """Whether launcher and ranks meet on one host for the life of the job."""
        return self.layout.hosts == (self.master,) and not self.request.elastic

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
        """The value of `DEEPLEARNING_JOB`, by which the processes of a run are known on every host."""
        return f"{self._folder['job']}/{self._folder['run']}"

    @property
    def mount_point(self) -> str:
        """Where the shared file system is mounted."""
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
        return {**own, **self.request.environment}


@dataclass(frozen=True)
class Part:
    """Words of a command line that belong together, and why they are there; without a why they need none."""

    words: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True)
class Draft:
    """
    A launcher's contribution to a plan.

    Attributes:
        processes: In the order of their start.
        files: Path -> text, beside the scripts that every launcher needs.
        reasons: Of its command lines and its variables.
        rank_zero_log: The file that holds what rank 0 writes.
        rank_lines: Lines that the rank script runs before the program. Default: none.
    """

    processes: tuple[Process, ...]
    files: Mapping[str, str]
    reasons: tuple[Reason, ...]
    rank_zero_log: str
    rank_lines: tuple[str, ...] = ()


def join_parts(parts: list[Part]) -> tuple[str, ...]:
    """Return the command line."""
    return tuple(word for part in parts for word in part.words)


def explain_parts(parts: list[Part]) -> tuple[Reason, ...]:
    """Return the reasons of a command line, in its order."""
    return tuple(Reason(shlex.join(part.words), part.why) for part in parts if part.why)
