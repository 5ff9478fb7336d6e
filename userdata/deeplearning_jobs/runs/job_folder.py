"""
Folder of a job on the shared file system, and the records of its runs.

    jobs/<job>/job.json          time and user of the first run
    jobs/<job>/checkpoints/      checkpoints of all runs of the job
    jobs/<job>/runs/<k>/         plan.json, plan.txt, launch.log, status.json and a log a rank
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.job_definition import JOB_NAME
from deeplearning_jobs.launchers.launcher import LAUNCHER
from deeplearning_jobs.plan.launch_plan import LaunchPlan
from deeplearning_jobs.runs.run_status import RunStatus
from deeplearning_node.atomic_file import write_file

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_INTERPRETERS = re.compile(r"(python|pypy)[0-9.]*|bash|sh|dash|zsh")
_PYTHON_OPTIONS = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SHELL_OPTIONS = frozenset({"-o", "-O"})
"""Options with a value in the next word."""


class JobNameError(ValueError):
    """Name of a job that does not exist, or that is invalid."""


@dataclass(frozen=True)
class Run:
    """One run of a job; numbers begin at 1."""

    job: str
    number: int
    path: Path

    @property
    def name(self) -> str:
        """Mark of the run's processes, the value of `DEEPLEARNING_JOB`."""
        return f"{self.job}/{self.number}"

    @property
    def launch_log(self) -> Path:
        """Log of the run's supervisor."""
        return self.path / "launch.log"

    def log(self, process: str) -> Path:
        """
        Return the log of a process of the plan, for its output outside of ranks.

        Each host writes its own file: two hosts that append to one file over NFS overwrite each other's lines.
        """
        return self.path / (f"{process}.log" if process == LAUNCHER else f"ssh-{process}.log")

    def write_plan(self, plan: LaunchPlan, page: str) -> None:
        """Write plan.json, plan.txt and the plan's own files."""
        write_file(self.path / "plan.json", json.dumps(asdict(plan), indent=2) + "\n")
        write_file(self.path / "plan.txt", page)
        for name, text in plan.files.items():
            write_file(Path(name), text, 0o755 if text.startswith("#!") else 0o644)

    def write_status(self, status: RunStatus) -> None:
        """Replace status.json."""
        write_file(self.path / "status.json", status.to_text())

    def read_status(self) -> RunStatus | None:
        """Return the run's status; None when it has no readable one."""
        try:
            return RunStatus.from_text((self.path / "status.json").read_text(encoding="utf-8"))
        except (OSError, ContractError):
            return None

    def find_rank_zero_log(self) -> Path:
        """Return the log of rank 0 that the plan names."""
        try:
            return Path(json.loads((self.path / "plan.json").read_text(encoding="utf-8"))["rank_zero_log"])
        except OSError:  # The run ended before its plan was written.
            return self.path / "rank-0.log"


@dataclass(frozen=True)
class JobFolder:
    """One job."""

    name: str
    path: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the job's checkpoints."""
        return self.path / "checkpoints"

    def runs(self) -> list[Run]:
        """Return the job's runs, the newest last."""
        try:
            numbers = sorted(int(path.name) for path in (self.path / "runs").iterdir() if path.name.isdigit())
        except OSError:
            return []
        return [self.run(number) for number in numbers]

    def run(self, number: int) -> Run:
        """Return a run, which need not exist."""
        return Run(self.name, number, self.path / "runs" / str(number))

    def start_run(self, run: Run, user: str) -> None:
        """Create a run's folder, and the job's for its first run; FileExistsError when another command was faster."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        if not (self.path / "job.json").exists():
            write_file(self.path / "job.json", json.dumps({"job": self.name, "user": user, "created": now()}) + "\n")
        (self.path / "runs").mkdir(exist_ok=True)
        run.path.mkdir()

    def next_run(self) -> Run:
        """Return the next run, which does not exist yet."""
        return self.run(max((run.number for run in self.runs()), default=0) + 1)


@dataclass(frozen=True)
class JobsFolder:
    """All jobs of a cluster, below `<mount point>/jobs`."""

    path: Path

    def job(self, name: str) -> JobFolder:
        """Return a job, which need not exist; JobNameError for an invalid name."""
        if not JOB_NAME.fullmatch(name):
            raise JobNameError(f"a job's name must be at most 64 letters, digits, '.', '_' and '-', got {name!r}")
        return JobFolder(name, self.path / name)

    def jobs(self) -> list[JobFolder]:
        """Return the existing jobs, by name."""
        try:
            names = sorted(path.name for path in self.path.iterdir() if JOB_NAME.fullmatch(path.name) and path.is_dir())
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
        """Return a run of `<job>` or `<job>/<run>`, by default the newest; an empty name is the last started job."""
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
    """Return the time in the format of the files, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def name_job(program: tuple[str, ...]) -> str:
    """Return the default name of a job: the stem of its program file, or its module."""
    name = program[0]
    file = find_program_file(program)
    if file:
        name = Path(file).stem
    elif "-m" in program[1:-1]:
        name = program[program.index("-m", 1) + 1].removesuffix(".__main__").rpartition(".")[2]
    name = _UNFIT.sub("-", Path(name).name)[:64].strip("-._")
    if not JOB_NAME.fullmatch(name):
        raise JobNameError(f"the program's name {program[0]!r} cannot name the job; add --name")
    return name


def find_program_file(program: tuple[str, ...]) -> str:
    """Return the file that a command line runs: the program itself, or its interpreter's script; empty for none."""
    if not _INTERPRETERS.fullmatch(Path(program[0]).name):
        return program[0] if "/" in program[0] else ""
    options = _PYTHON_OPTIONS if "py" in Path(program[0]).name else _SHELL_OPTIONS
    words = iter(program[1:])
    for word in words:
        if word in options:
            next(words, "")
        elif word in {"-m", "-c", "-"}:
            return ""
        elif not word.startswith("-"):
            return word
    return ""
