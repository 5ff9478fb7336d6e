"""
A training job, with its states as the API shows them.

SageMaker API reference, DescribeTrainingJob: SecondaryStatus and SecondaryStatusTransitions.
"""

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

MESSAGES = {
    "Starting": "Starting the training job",
    "Pending": "Preparing the instances for training",
    "Downloading": "Downloading the input data",
    "DownloadingTrainingImage": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Interrupted": "Training job interrupted: spot capacity was taken back",
    "Uploading": "Uploading generated training model",
    "Stopping": "Stopping the training job",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Stopped": "Training job stopped",
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",
    "MaxWaitTimeExceeded": "Training job wait time exceeded MaxWaitTimeInSeconds provided",
}
"""Secondary status -> message of its transition. AWS promises no wording."""
_STATUSES = {
    "Completed": "Completed",
    "Failed": "Failed",
    "Stopped": "Stopped",
    "MaxRuntimeExceeded": "Stopped",
    "MaxWaitTimeExceeded": "Stopped",
    "Stopping": "Stopping",
}
ENDED = ("Completed", "Failed", "Stopped")
MOST_REASON = 1024
"""Most characters of a failure's reason (API reference, FailureReason)."""


def now() -> datetime:
    """Return the time."""
    return datetime.now(timezone.utc)


@dataclass
class TrainingJob:
    """Training job; other threads read it."""

    request: Mapping[str, Any]
    arn: str
    created: datetime = field(default_factory=now)
    status: str = "InProgress"
    secondary: str = ""
    transitions: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    failed: str = ""  # Container that failed first; empty without one
    model: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    metrics: dict[str, tuple[float, datetime]] = field(default_factory=dict)
    is_stopped: threading.Event = field(default_factory=threading.Event)
    is_interrupted: threading.Event = field(default_factory=threading.Event)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.request["TrainingJobName"])

    @property
    def role(self) -> str:
        """ARN of its execution role."""
        return str(self.request["RoleArn"])

    @property
    def is_spot(self) -> bool:
        """True if it runs on spot capacity."""
        return bool(self.request.get("EnableManagedSpotTraining"))

    @property
    def has_ended(self) -> bool:
        """True if it has ended."""
        return self.status in ENDED

    def enter(self, secondary: str) -> None:
        """Enter a secondary status."""
        with self._lock:
            moment = now()
            if self.transitions:
                self.transitions[-1]["EndTime"] = moment
            self.transitions.append({"Status": secondary, "StartTime": moment, "StatusMessage": MESSAGES[secondary]})
            self.secondary, self.status = secondary, _STATUSES.get(secondary, "InProgress")
            if secondary == "Training" and self.started is None:
                self.started = moment
            if self.has_ended:
                self.ended = self.transitions[-1]["EndTime"] = moment

    def read_metrics(self, line: str) -> None:
        """Read the job's metrics from a line of its log."""
        for definition in self.request["AlgorithmSpecification"].get("MetricDefinitions", []):
            if found := re.search(definition["Regex"], line):
                try:
                    self.metrics[definition["Name"]] = float(found[1]), now()
                except (IndexError, ValueError):
                    continue

    def to_api(self) -> dict[str, Any]:
        """Return the answer of DescribeTrainingJob."""
        with self._lock:
            shown = {key: value for key, value in self.request.items() if key != "Tags"}
            seconds = int((self.ended - self.started).total_seconds()) if self.ended and self.started else None
            metrics = [
                {"MetricName": name, "Value": value, "Timestamp": at} for name, (value, at) in self.metrics.items()
            ]
            more = {
                "TrainingJobArn": self.arn,
                "TrainingJobStatus": self.status,
                "SecondaryStatus": self.secondary,
                "SecondaryStatusTransitions": [dict(each) for each in self.transitions],
                "CreationTime": self.created,
                "LastModifiedTime": self.transitions[-1]["StartTime"],
                "TrainingStartTime": self.started,
                "TrainingEndTime": self.ended,
                "TrainingTimeInSeconds": seconds,
                "BillableTimeInSeconds": seconds,
                "FailureReason": self.reason or None,
                "ModelArtifacts": {"S3ModelArtifacts": self.model} if self.model else None,
                "FinalMetricDataList": metrics if self.has_ended and metrics else None,
            }
            return {**shown, **{key: value for key, value in more.items() if value is not None}}
