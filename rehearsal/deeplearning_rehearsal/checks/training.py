"""The jobs that a formed cluster runs, submitted as a user's job is: the example that trains, and one that counts."""

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomllib

from cdk_rehearsal.errors import PromiseError
from deeplearning_contract.document import read_record
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import (
    SUBMISSION_PATH,
    SubmissionSettings,
    make_agent_copy,
    submission_parameter,
)
from deeplearning_contract.names import JOBS_FOLDER
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_rehearsal.checks.contract_check import Nodes
from deeplearning_rehearsal.checks.results import CountReport, TrainingReport

LAUNCHER = "horovod"
"""Of `deeplearning run`, where none is asked for."""
ELASTIC = "horovod elastic"
"""The launcher's name in the report of a job whose ranks may come and go."""
JOB_FILE, PROGRAM = "train_digits.toml", "train_digits.py"
DATA_MODULE = "digits.py"
"""Of the examples; it reads the digits from the file beside it."""
COUNTING_PROGRAM = Path(__file__).with_name("count_ranks.py")
COUNTING_JOB = JobDefinition("count_ranks", ("python3", COUNTING_PROGRAM.name), launcher="tf-ps")
"""A job that counts its ranks; it needs no framework."""
RESUMING_JOB = replace(COUNTING_JOB, program=(*COUNTING_JOB.program, "20"))
"""The same on platforms whose jobs bring their nodes: it takes ten seconds more, and resumes."""
MINIMUM_ACCURACY = 0.90
_FIGURES = ("framework", "ranks", "hosts", "dataset", "accuracy", "seconds")
SHARED_FOLDER = "$EFS_MOUNT/rehearsal"
ENDLESS_JOB = JobDefinition("contract", ("sleep", "3600"), launcher="tf-ps")
"""A job that runs until it is stopped, so that there is time to look at its members; its launcher needs nothing."""


def example_folder() -> Path:
    """Return the folder of the examples: in a checkout its own, in the wheel the copy that it carries."""
    packed = Path(__file__).parents[1] / "_examples"
    return packed if packed.is_dir() else Path(__file__).parents[3] / "examples"


def read_job(**keys: Any) -> JobDefinition:
    """Return the job of every rehearsal, without its source, from the file of the example with keys that differ."""
    document = tomllib.loads((example_folder() / JOB_FILE).read_text(encoding="utf-8"))
    del document["source"]  # The folder of the file, of which rehearsals take what the program needs.
    return read_record(JobDefinition, document | keys, "job")


def list_sources(job: JobDefinition, find_digits: Callable[[], Path]) -> tuple[Path, ...]:
    """Return the files of the source folder of the example, or of the job that counts."""
    if job.name == COUNTING_JOB.name:
        return (COUNTING_PROGRAM,)
    return (example_folder() / PROGRAM, example_folder() / DATA_MODULE, find_digits())


def list_examples() -> tuple[str, ...]:
    """Return the programs and scripts among the examples, relative to their folder; CDK apps are for other machines."""
    folder = example_folder()
    paths = [path for path in folder.rglob("*") if path.suffix in {".py", ".sh"}]
    return tuple(sorted(str(path.relative_to(folder)) for path in paths if not (path.parent / "app.py").exists()))


def read_submission(clients: Callable[[str], Any], cluster: str) -> SubmissionSettings:
    """Return the submission document of a cluster; PromiseError without one."""
    ssm, name = clients("ssm"), submission_parameter(cluster)
    try:
        return SubmissionSettings.from_json(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound as error:
        raise PromiseError(f"the stack must have the submission document {name}, it is not there") from error


def find_submission(clients: Callable[[str], Any]) -> SubmissionSettings:
    """Return the submission document of the only stack that takes jobs; PromiseError without one."""
    pages = clients("ssm").get_paginator("get_parameters_by_path").paginate(Path=SUBMISSION_PATH, Recursive=True)
    found = [entry for page in pages for entry in page["Parameters"] if str(entry["Name"]).endswith("/submission")]
    if len(found) != 1:
        raise PromiseError(f"the stack must have one submission document below {SUBMISSION_PATH}, got {len(found)}")
    return SubmissionSettings.from_json(found[0]["Value"])


def list_checkpoints(shared: Path, job: str) -> list[Path]:
    """Return the checkpoints of a job in the folder of a shared file system, the newest last."""
    folder = shared / JOBS_FOLDER / job / "checkpoints"
    found = folder.glob("epochs-*") if folder.is_dir() else ()
    # By their names, whose numbers are padded: the job deletes old ones meanwhile.
    return sorted(path for path in found if path.suffix != ".tmp")


def copy_programs(clients: Callable[[str], Any], settings: SubmissionSettings) -> None:
    """Copy the programs of jobs to where they read them, as `deeplearning-cdk submit` does before each job."""
    if copy := make_agent_copy(settings):
        clients("s3").copy_object(**copy)


def upload_job(
    clients: Callable[[str], Any], settings: SubmissionSettings, job: JobDefinition, files: Iterable[Path]
) -> JobDefinition:
    """Upload a source folder of these files to where the cluster's submission document says; return the job with it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in files:
            archive.add(path, path.name)
    sha256 = hashlib.sha256(buffer.getvalue()).hexdigest()
    source = ScriptSettings(settings.bucket, f"{settings.prefix}{sha256}.tar.gz", sha256)
    clients("s3").put_object(Bucket=source.bucket, Key=source.key, Body=buffer.getvalue())
    return replace(job, source=source)


def make_training_report(launcher: str, result: Mapping[str, Any]) -> TrainingReport:
    """Return the report of a job from its own result; raises PromiseError if that lacks a figure."""
    if missing := find_missing_figures(result):
        raise PromiseError(f"training's result must have {', '.join(missing)}, got {json.dumps(result)}")
    return TrainingReport(launcher=launcher, **{name: result[name] for name in _FIGURES})


def find_missing_figures(result: Mapping[str, Any]) -> list[str]:
    """Return the figures that a job's result must have and has not."""
    return [name for name in _FIGURES if name not in result]


def judge_training(training: TrainingReport, nodes: int, slots: int) -> tuple[str, ...]:
    """Return which promises a training job breaks, on so many nodes with so many slots of the hostfile."""
    problems = []
    if training.accuracy < MINIMUM_ACCURACY:
        problems.append(f"held-out accuracy must be at least {MINIMUM_ACCURACY}, got {training.accuracy:.3f}")
    if training.launcher == ELASTIC:  # how many ranks there are at the end is the case's to say
        return tuple(problems)
    return (*problems, *judge_ranks(training, nodes, slots))


def judge_ranks(job: TrainingReport | CountReport, nodes: int, slots: int) -> Iterator[str]:
    """Yield the promises that the ranks of a job break, on so many nodes with so many slots of the hostfile."""
    if job.ranks != slots:
        yield f"a job must use every slot, got {job.ranks} ranks for {slots} slots"
    if len(set(job.hosts)) != nodes:
        yield f"a job must run on each of {nodes} hosts, got {sorted(set(job.hosts))}"


def copy_examples(nodes: Nodes, master: str, user: str, names: Iterable[str], digits: Path) -> None:
    """
    Copy files of the examples and the digits to `SHARED_FOLDER` on the shared file system; raises PromiseError if it
    fails.
    """
    files = {name: example_folder() / name for name in names} | {digits.name: digits}
    for name, file in files.items():
        path = f"{SHARED_FOLDER}/{name}"
        script = (
            f'mkdir -p "{SHARED_FOLDER}/{Path(name).parent}" && printf %s "$1" | base64 --decode > "{path}" && '
            f'chmod 755 "{path}"'
        )
        content = base64.b64encode(file.read_bytes()).decode()
        answer = nodes.run(master, ["bash", "-c", script, "copy", content], user=user, login_shell=True)
        if answer.returncode != 0:
            raise PromiseError(f"{name} could not be copied to the shared file system: {answer.stderr.strip()}")


def read_result(output: str) -> dict[str, Any]:
    """
    Return the one JSON line that a job prints; launchers may put a prefix such as `[1,0]<stdout>:` before it.

    Raises PromiseError if there is none.
    """
    for line in reversed(output.splitlines()):
        begin = line.find('{"')
        if begin >= 0 and '"hosts"' in line:
            return _parse(line[begin:])
    raise PromiseError(f"the job printed no result: {last_lines(output)}")


def _parse(line: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise PromiseError(f"the job printed no result: {error} in {line}") from error
    return document


def last_lines(output: str) -> str:
    """Return the last lines of an output as one, for a message."""
    return " | ".join(line.strip() for line in output.splitlines()[-12:] if line.strip())
