"""Log of the first container of a training job, in CloudWatch Logs."""

from typing import Any

from deeplearning_cli.jobs.output import JobOutput
from deeplearning_contract.jobs.training_job import LOG_GROUP

LAST_LINES = 40
_MOST_EVENTS = 10_000


class TrainingLog:
    """
    Log of the first container, whose stream is named `<training job>/algo-1-<milliseconds>`.

    Containers that SageMaker starts again, after an interruption of spot capacity, have further streams.
    """

    def __init__(self, logs: Any, training_job: str) -> None:
        """Bind the client of CloudWatch Logs, and the training job; nothing is read yet."""
        self._logs, self._prefix = logs, f"{training_job}/algo-1-"
        self._tokens: dict[str, str] = {}
        """Stream -> where to read on."""

    def print_new(self, output: JobOutput) -> None:
        """Print all lines since the last call."""
        for stream in self._list_streams():
            while True:
                token = {"nextToken": self._tokens[stream]} if stream in self._tokens else {}
                page = self._logs.get_log_events(
                    logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, limit=_MOST_EVENTS, **token
                )
                for event in page["events"]:
                    output.print_line(event["message"])
                # At the end of a stream, the token is the one of the call (API reference, GetLogEvents).
                is_end = self._tokens.get(stream) == page["nextForwardToken"] or not page["events"]
                self._tokens[stream] = page["nextForwardToken"]
                if is_end:
                    break

    def print_last(self, output: JobOutput, lines: int | None) -> None:
        """Print the last lines of the newest stream. Default: 40."""
        for stream in self._list_streams()[-1:]:
            page = self._logs.get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=False, limit=lines or LAST_LINES
            )
            for event in page["events"]:
                output.print_line(event["message"])

    def _list_streams(self) -> list[str]:
        """Return the streams, the oldest first; none before the container has written."""
        try:
            pages = self._logs.get_paginator("describe_log_streams").paginate(
                logGroupName=LOG_GROUP, logStreamNamePrefix=self._prefix
            )
            names = [str(stream["logStreamName"]) for page in pages for stream in page["logStreams"]]
        except self._logs.exceptions.ResourceNotFoundException:  # SageMaker creates the group with the first log.
            return []
        return sorted(names, key=lambda name: int(name.removeprefix(self._prefix)))
