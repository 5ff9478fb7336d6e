"""
Where a job's files lie on the shared file system, and what is written there of its runs.

    jobs/<job>/job.json          when the job was first run, by whom
    jobs/<job>/checkpoints/      what every run of the job goes on from
    jobs/<job>/runs/<k>/         plan.json, plan.txt, launch.log, status.json and a log a rank
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from deeplearning_jobs.plan.launch_plan import LaunchPlan
from deeplearning_jobs.runs.run_status import RunStatus
from deeplearning_node.atomic_file import write_file

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LAUNCHER = "launcher"
"""The plan's name of a process that starts the ranks from the master."""


class JobNameError(ValueError):
    """A name names no job, or cannot name one."""


@dataclass(frozen=True)
class Run:
    """
    One run of a job.

    Attributes:
        job: The job's name.
        number: From 1.
        path: Its folder.
    """

    job: str
    number: int
    path: Path

    @property
    def name(self) -> str:
        """What marks the run's processes, as `DEEPLEARNING_JOB`."""
        return f"{self.job}/{self.number}"

    @property
    def launch_log(self) -> Path:
        """What the run's supervisor says."""
        return self.path / "launch.log"

    def log(self, process: str) -> Path:
        """
        Return the file that takes what a process of the plan writes outside its ranks.

        A process on another host writes its own file by its own name: two hosts that add to one file over NFS would
        overwrite each other's lines.
        """
        return self.path / (f"{process}.log" if process == LAUNCHER else f"ssh-{process}.log")

    def write_plan(self, plan: LaunchPlan, page: str) -> None:
        """
        Keep what runs, and write the files that it needs.

        Effects: plan.json, plan.txt and the plan's own files.
        """
        write_file(self.path / "plan.json", json.dumps(asdict(plan), indent=2) + "\n")
        write_file(self.path / "plan.txt", page)
        for name, text in plan.files.items():
            write_file(Path(name), text, 0o755 if text.startswith("#!") else 0o644)

    def write_status(self, status: RunStatus) -> None:
        """
        Replace the run's status.

        Effects: status.json.
        """
        write_file(self.path / "status.json", status.to_text())

    def read_status(self) -> RunStatus | None:
        """Return the run's status; None when it has none that can be read."""
        try:
            return RunStatus.from_text((self.path / "status.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # ContractError is a ValueError.
            return None

    def find_rank_zero_log(self) -> Path:
        """Return the file that rank 0 writes, as the plan says."""
        try:
            return Path(json.loads((self.path / "plan.json").read_text(encoding="utf-8"))["rank_zero_log"])
        except (OSError, ValueError, KeyError, TypeError):
            return self.path / "rank-0.log"


@dataclass(frozen=True)
class JobFolder:
    """
    One job.

    Attributes:
        name: The job's name.
        path: Its folder.
    """

    name: str
    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of the job's checkpoints."""
        return self.path / "checkpoints"

    def runs(self) -> list[Run]:
        """Return the job's runs, the newest last."""
        try:
            numbers = sorted(int(path.name) for path in (self.path / "runs").iterdir() if path.name.isdigit())
        except OSError:
            return []
        return [self.run(number) for number in numbers]

    def run(self, number: int) -> Run:
        """Return a run, whether it is there or not."""
        return Run(self.name, number, self.path / "runs" / str(number))

    def start_run(self, run: Run, user: str) -> None:
        """
        Make a run's folder.

        Effects: the job's folder, where it is the first run.

        Raises:
            FileExistsError: Another command was faster.
            OSError: The shared file system does not take it.
        """
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        if not (self.path / "job.json").exists():
            write_file(self.path / "job.json", json.dumps({"job": self.name, "user": user, "created": now()}) + "\n")
        (self.path / "runs").mkdir(exist_ok=True)
        run.path.mkdir()

    def next_run(self) -> Run:
        """Return the run that comes next; it is not there yet."""
        return self.run(max((run.number for run in self.runs()), default=0) + 1)


@dataclass(frozen=True)
class JobsFolder:
    """
    All jobs of a cluster.

    Attributes:
        path: `<mount point>/jobs`.
    """

    path: Path

    def job(self, name: str) -> JobFolder:
        """
        Return a job, whether it is there or not.

        Raises:
            JobNameError: The name cannot be a job's.
        """
        if not NAME.fullmatch(name):
            raise JobNameError(f"a job's name must be at most 64 letters, digits, '.', '_' and '-', got {name!r}")
        return JobFolder(name, self.path / name)

    def jobs(self) -> list[JobFolder]:
        """Return the jobs that are there, by name."""
        try:
            names = sorted(path.name for path in self.path.iterdir() if NAME.fullmatch(path.name) and path.is_dir())
        except OSError:
            return []
        return [JobFolder(name, self.path / name) for name in names]

    def runs_with_status(self) -> Iterator[tuple[Run, RunStatus]]:
        """Yield every run that has a status."""
        for job in self.jobs():
            for run in job.runs():
                status = run.read_status()
                if status is not None:
                    yield run, status

    def find_run(self, name: str, number: int | None = None) -> Run:
        """
        Find a run.

        Args:
            name: The job, or `<job>/<run>`; empty for the job that was started last.
            number: Which run. Default: the newest.

        Raises:
            JobNameError: There is no such run.
        """
        job, _, wanted = name.partition("/")
        if wanted.isdigit():
            number = int(wanted)
        if not name:
            started = {run: status.started for run, status in self.runs_with_status()}
            if not started:
                raise JobNameError(f"no job has been run: {self.path} has none; start one with `deeplearning run`")
            newest = max(started, key=lambda run: started[run])
            job, number = newest.job, number or newest.number
        runs = self.job(job).runs()
        found = [run for run in runs if number in {None, run.number}]
        if not found:
            jobs = ", ".join(job.name for job in self.jobs()) or "none"
            known = f"runs {', '.join(str(run.number) for run in runs)}" if runs else f"jobs {jobs}"
            raise JobNameError(f"there is no run {name or job}{f'/{number}' if number else ''}; there are {known}")
        return found[-1]


def now() -> str:
    """Return the time as the files have it, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
