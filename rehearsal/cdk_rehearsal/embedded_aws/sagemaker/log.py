"""Log streams of a training job, one for each container, written while it runs, with the rights of its role."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.sagemaker.job import TrainingJob

GROUP = "/aws/sagemaker/TrainingJobs"
"""Developer guide, "Log Groups and Streams that Amazon SageMaker AI Logs"."""
_WRITE_SECONDS = 0.5


class TrainingLog:
    """Writer of the streams `<job>/algo-<n>-<milliseconds>`."""

    def __init__(self, logs: Any, job: TrainingJob, observations: Observations) -> None:
        self._logs, self._job, self._observations = logs, job, observations
        self._lines: dict[str, deque[tuple[int, str]]] = {}
        self._ended = threading.Event()
        self._writer = threading.Thread(target=self._write_on, name=f"log of {job.name}", daemon=True)
        self._began = int(time.time() * 1000)

    def open(self, host: str) -> Callable[[str], None]:
        """Return what takes each line of a container."""
        stream = f"{self._job.name}/{host}-{self._began}"
        lines = self._lines[stream] = deque()
        self._call("create_log_group", logGroupName=GROUP)
        self._call("create_log_stream", logGroupName=GROUP, logStreamName=stream)
        if not self._writer.is_alive():
            self._writer.start()

        def take(line: str) -> None:
            lines.append((int(time.time() * 1000), line))
            self._job.read_metrics(line)

        return take

    def close(self) -> None:
        """Write what is left."""
        if not self._ended.is_set():
            self._ended.set()
            if self._writer.is_alive():
                self._writer.join()

    def _write_on(self) -> None:
        while not self._ended.wait(_WRITE_SECONDS):
            self._write()
        self._write()

    def _write(self) -> None:
        for stream, lines in list(self._lines.items()):
            events = []
            while lines:
                at, line = lines.popleft()
                events.append({"timestamp": at, "message": line or " "})
            if events:
                self._call("put_log_events", logGroupName=GROUP, logStreamName=stream, logEvents=events)

    def _call(self, operation: str, **parameters: Any) -> None:
        try:
            getattr(self._logs, operation)(**parameters)
        except ClientError as error:  # A log that the role may not write is lost; the job goes on.
            if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
                self._observations.tell("refusal", self._job.name, f"{operation}: {error}")
