"""
Program of every container: prepare it, form the cluster, and run the job or wait for its end.

The first container alone decides the outcome of the training job and its reason: the others end with status 0 when it
has ended. SageMaker ends the job with the first container that fails.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

from deeplearning_contract.jobs.job_definition import COMMAND
from deeplearning_contract.names import AGENT_DIRECTORY
from deeplearning_contract.settings import NodeSettings
from deeplearning_member.sagemaker.container import open_container, prepare_container
from deeplearning_member.sagemaker.first_process import run_in_child
from deeplearning_member.sagemaker.meeting import (
    POLL_SECONDS,
    SEPARATED_REMEDY,
    SSH_PORT,
    Meeting,
    StoppedError,
    responds,
)
from deeplearning_member.sagemaker.outcome import open_job, publish_model, write_failure
from deeplearning_member.sagemaker.rounds import Round, RoundFile
from deeplearning_member.sagemaker.training_job import TrainingJob
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure, describe_failure
from deeplearning_node.node import Node

LOG = logging.getLogger("deeplearning_member")
END_SECONDS = 100.0
"""Time for the ranks to end after a stop; SageMaker kills a container after 120 s (API reference, StopTrainingJob)."""
SILENT_SECONDS = 60.0
"""Time after which the first container counts as lost."""
_JOIN_SECONDS, _PROBE_SECONDS = 5.0, 10.0
_LAST_LINES = 3
_LOST_REMEDY = "submit the job again; it resumes from its newest checkpoint"


def train(root: Path = Path("/")) -> int:
    """Run the program of the container, its first process, and return the exit status."""
    return run_in_child(lambda: _run(root))


def _run(root: Path) -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    logging.basicConfig(format="deeplearning-member: %(message)s", level=logging.INFO, stream=sys.stdout, force=True)
    try:
        return run_container(root, stop)
    except StoppedError:
        LOG.info("the job was stopped before its start")
        return 0
    except Exception as error:  # noqa: BLE001 - SageMaker shows the reason of any failure
        reason = str(describe_failure(error, "train").reason(os.uname().nodename))
        LOG.error("%s", reason)  # noqa: TRY400 - the reason says it all
        write_failure(root, reason)
        return 1


def run_container(root: Path, stop: threading.Event) -> int:
    """Prepare the container, and run the job or wait for its end; `stop` is set when SageMaker stops the job."""
    try:
        text = (root / AGENT_DIRECTORY.lstrip("/") / "settings.json").read_text(encoding="utf-8")
        settings = NodeSettings.from_json(text)
    except (OSError, ValueError) as error:  # ContractError is a ValueError.
        raise StageFailure(str(error), "deploy the stack again", stage="read the settings") from error
    job = TrainingJob.read(root, os.environ["TRAINING_JOB_NAME"])
    node = open_container(root, settings, job)
    LOG.info("preparing %s of %d containers", node, len(job.hosts))
    deadline = node.limit(settings.setup_seconds)
    member = prepare_container(node, deadline)
    current = Meeting(node, member, job.hosts, stop.is_set).form(deadline)
    return lead(node, job, current, stop) if node.is_master else follow(node, current, job.hosts[0], stop)


def lead(node: Node, job: TrainingJob, current: Round, stop: threading.Event) -> int:
    """Run the job to its end, and let the others know it."""
    runs = open_job(node, job.definition).runs()
    words = [COMMAND, "start-job", "--end-with-parent", job.definition.encode()]
    # The command reads the environment of a login, as on the other platforms.
    process = subprocess.Popen(["bash", "--login", "-c", 'exec "$0" "$@"', *words], stderr=subprocess.PIPE, text=True)
    said: deque[str] = deque(maxlen=_LAST_LINES)
    reader = threading.Thread(target=_copy_errors, args=[process, said], daemon=True)
    reader.start()
    while (status := process.poll()) is None:
        if stop.wait(POLL_SECONDS):
            process.terminate()
            status = process.wait()
            break
    reader.join(_JOIN_SECONDS)
    later = [run for run in open_job(node, job.definition).runs() if run not in runs]
    ended = later[-1].read_status() if later else None
    cause = ended.cause if ended and ended.cause else " | ".join(said)
    if status == 0 or stop.is_set():
        publish_model(node, job.definition)
    else:
        write_failure(node.root, cause or f"the job ended with status {status}; see the log of {job.host}")
    RoundFile(node).write(Round(current.id, status, cause))
    return status


def follow(node: Node, current: Round, first: str, stop: threading.Event) -> int:
    """Wait for the end of the job on the first container; StageFailure when it is lost."""
    rounds, clock = RoundFile(node), node.clock
    silent = Deadline.after(clock, SILENT_SECONDS)
    probe = Deadline.after(clock, 0)
    last: Deadline | None = None
    has_responded = False
    while last is None or not last.is_over:
        found = rounds.read()
        if found is not None and found.id == current.id and found.status is not None:
            return 0
        if stop.is_set() and last is None:
            last = Deadline.after(clock, END_SECONDS)  # Ranks of this container may write until the job has ended.
        if probe.is_over:
            probe = Deadline.after(clock, _PROBE_SECONDS)
            if responds(first):
                has_responded = True
                silent = Deadline.after(clock, SILENT_SECONDS)
            elif silent.is_over:
                raise StageFailure(
                    f"{first} has not responded on port {SSH_PORT} for {SILENT_SECONDS:.0f} s",
                    _LOST_REMEDY if has_responded else SEPARATED_REMEDY,
                    stage="follow the job",
                )
        clock.wait(POLL_SECONDS)
    return 0


def _copy_errors(process: "subprocess.Popen[str]", said: "deque[str]") -> None:
    for line in process.stderr or ():
        sys.stderr.write(line)
        if text := line.strip():
            said.append(text)
