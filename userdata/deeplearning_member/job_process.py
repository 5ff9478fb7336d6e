"""The job of a container's first member, as a process of its own."""

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from deeplearning_contract.jobs.job_definition import COMMAND, JobDefinition
from deeplearning_contract.names import JOBS_FOLDER
from deeplearning_jobs.runs.job_folder import JobFolder
from deeplearning_node.node import Node

POLL_SECONDS = 0.5
_JOIN_SECONDS = 5.0
_LAST_LINES = 3


@dataclass(frozen=True)
class JobEnd:
    """End of a job."""

    status: int  # Exit status of the command
    cause: str  # Cause of a failure or a stop; empty otherwise


def open_job(node: Node, job: JobDefinition) -> JobFolder:
    """Return the folder of a job on the shared file system."""
    return JobFolder(job.name, node.path(node.settings.file_system.mount_point) / JOBS_FOLDER / job.name)


def run_job(node: Node, definition: JobDefinition, waits_for_stop: Callable[[float], bool]) -> JobEnd:
    """
    Run a job to its end, and copy what it writes to standard error.

    Args:
        node: This container.
        definition: The job.
        waits_for_stop: Waits for a stop for so many seconds at most, and returns whether there is one; the job then
            gets SIGTERM.
    """
    before = open_job(node, definition).runs()
    words = [COMMAND, "start-job", "--end-with-parent", definition.encode()]
    # The command reads the environment of a login, as on the other platforms.
    process = subprocess.Popen(["bash", "--login", "-c", 'exec "$0" "$@"', *words], stderr=subprocess.PIPE, text=True)
    said: deque[str] = deque(maxlen=_LAST_LINES)
    reader = threading.Thread(target=_copy_errors, args=[process, said], daemon=True)
    reader.start()
    while (status := process.poll()) is None:
        if waits_for_stop(POLL_SECONDS):
            process.terminate()
            status = process.wait()
            break
    reader.join(_JOIN_SECONDS)
    later = [run for run in open_job(node, definition).runs() if run not in before]
    ended = later[-1].read_status() if later else None
    return JobEnd(status, ended.cause if ended and ended.cause else " | ".join(said))


def _copy_errors(process: "subprocess.Popen[str]", said: "deque[str]") -> None:
    for line in process.stderr or ():
        sys.stderr.write(line)
        if text := line.strip():
            said.append(text)
