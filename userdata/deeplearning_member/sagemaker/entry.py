"""
Program of every container: prepare it, form the cluster, and run the job or wait for its end.

The first container alone decides the outcome of the training job and its reason: the others end with status 0 when it
has ended. SageMaker ends the job with the first container that fails.
"""

import logging
import os
import signal
import sys
import threading
from pathlib import Path

from deeplearning_member.container import read_settings
from deeplearning_member.first_process import run_in_child
from deeplearning_member.job_process import run_job
from deeplearning_member.reachability import SSH_PORT, responds
from deeplearning_member.sagemaker.container import open_container, prepare_container
from deeplearning_member.sagemaker.meeting import POLL_SECONDS, SEPARATED_REMEDY, Meeting, StoppedError
from deeplearning_member.sagemaker.outcome import publish_model, write_failure
from deeplearning_member.sagemaker.rounds import Round, RoundFile
from deeplearning_member.sagemaker.training_job import TrainingJob
from deeplearning_member.signed_file import Signer
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure, describe_failure
from deeplearning_node.node import Node

LOG = logging.getLogger("deeplearning_member")
END_SECONDS = 100.0
"""Time for the ranks to end after a stop; SageMaker kills a container after 120 s (API reference, StopTrainingJob)."""
SILENT_SECONDS = 60.0
"""Time after which the first container counts as lost."""
_PROBE_SECONDS = 10.0
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
    settings = read_settings(root)
    job = TrainingJob.read(root, os.environ["TRAINING_JOB_NAME"])
    node = open_container(root, settings, job)
    LOG.info("preparing %s of %d containers", node, len(job.hosts))
    deadline = node.limit(settings.setup_seconds)
    member = prepare_container(node, deadline)
    current = Meeting(node, member, job.hosts, Signer(job.secret), stop.is_set).form(deadline)
    return lead(node, job, current, stop) if node.is_master else follow(node, job, current, stop)


def lead(node: Node, job: TrainingJob, current: Round, stop: threading.Event) -> int:
    """Run the job to its end, and let the others know it."""
    end = run_job(node, job.definition, stop.wait)
    if end.status == 0 or stop.is_set():
        publish_model(node, job.definition)
    else:
        write_failure(node.root, end.cause or f"the job ended with status {end.status}; see the log of {job.host}")
    RoundFile(node, Signer(job.secret)).write(Round(current.id, end.status, end.cause))
    return end.status


def follow(node: Node, job: TrainingJob, current: Round, stop: threading.Event) -> int:
    """Wait for the end of the job on the first container; StageFailure when it is lost."""
    rounds, clock, first = RoundFile(node, Signer(job.secret)), node.clock, job.hosts[0]
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
