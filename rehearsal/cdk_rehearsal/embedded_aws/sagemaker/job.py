"""A training job as data: its request, states, transitions, metrics and warm pool, in the forms of the API."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from cdk_rehearsal.embedded_aws.base.scaling_group import now

Secondary = Literal[
    "Starting",
    "Pending",
    "Downloading",
    "DownloadingTrainingImage",
    "Training",
    "Interrupted",
    "Stopping",
    "Uploading",
    "Completed",
    "Failed",
    "Stopped",
    "MaxRuntimeExceeded",
    "MaxWaitTimeExceeded",
]
PoolStatus = Literal["InUse", "Available", "Reused", "Terminated"]
_MESSAGES: Mapping[Secondary, str] = {
    "Starting": "Starting the training job",
    "Pending": "Preparing the instances for training",
    "Downloading": "Downloading input data",
    "DownloadingTrainingImage": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Interrupted": "Instances were interrupted; the training job starts again",
    "Stopping": "Stopping the training job",
    "Uploading": "Uploading generated training model",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Stopped": "Training job stopped",
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",
    "MaxWaitTimeExceeded": "Training job wait time exceeded MaxWaitTimeInSeconds provided",
}
"""Status messages are subject to change (SageMaker API reference, SecondaryStatusTransition)."""
_PRIMARY: Mapping[Secondary, str] = {
    "Stopping": "Stopping",
    "Completed": "Completed",
    "Failed": "Failed",
    "Stopped": "Stopped",
    "MaxRuntimeExceeded": "Stopped",
    "MaxWaitTimeExceeded": "Stopped",
}
"""Secondary status -> status; another one keeps the status (SageMaker API reference, DescribeTrainingJob)."""
ENDED = ("Completed", "Failed", "Stopped")
RUNNING = ("InProgress", "Stopping")
_MOST_REASON = 1024
"""Characters of a FailureReason."""
_NOT_SHOWN = ("Tags",)


@dataclass
class WarmPool:
    """The instances of a job that wait for the next one."""

    status: PoolStatus = "InUse"
    reused_by: str = ""
    available: datetime | None = None
    ended: datetime | None = None

    def enter(self, status: PoolStatus, reused_by: str = "") -> None:
        """Enter a status."""
        self.status, self.reused_by = status, reused_by
        if status == "Available":
            self.available = now()
        elif self.available is not None:
            self.ended = now()

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        answer: dict[str, Any] = {"Status": self.status}
        if self.available is not None:
            retained = (self.ended or now()) - self.available
            answer["ResourceRetainedBillableTimeInSeconds"] = int(retained.total_seconds())
        return answer | ({"ReusedByJob": self.reused_by} if self.reused_by else {})


@dataclass
class TrainingJob:
    """
    A training job; `lock` guards it.

    Attributes:
        stop: Set when the user stops it.
        interruption: Set when spot capacity is taken back.
        metrics: Name of a metric -> its last value and the time of that.
        trained: Seconds in which instances trained before the last interruption.
    """

    request: Mapping[str, Any]
    arn: str
    created: datetime = field(default_factory=now)
    status: str = "InProgress"
    transitions: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    model: str = ""
    metrics: dict[str, tuple[float, datetime]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pool: WarmPool | None = None
    started: datetime | None = None
    resumed: datetime | None = None
    trained: float = 0.0
    ended: datetime | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    interruption: threading.Event = field(default_factory=threading.Event)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.tags = {tag["Key"]: tag["Value"] for tag in self.request.get("Tags", [])}

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.request["TrainingJobName"])

    @property
    def role(self) -> str:
        """ARN of its execution role."""
        return str(self.request["RoleArn"])

    @property
    def instance_type(self) -> str:
        """SageMaker's name of the type of its instances."""
        return str(self.request["ResourceConfig"]["InstanceType"])

    @property
    def count(self) -> int:
        """Number of its instances."""
        return int(self.request["ResourceConfig"]["InstanceCount"])

    @property
    def is_on_spot(self) -> bool:
        """True if it runs on managed spot capacity."""
        return bool(self.request.get("EnableManagedSpotTraining"))

    @property
    def keep_alive(self) -> int:
        """Seconds for which its instances wait for the next job; 0 for none."""
        return int(self.request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0))

    @property
    def vpc(self) -> Mapping[str, Any]:
        """Its subnets and security groups."""
        vpc: Mapping[str, Any] = self.request["VpcConfig"]
        return vpc

    @property
    def secondary(self) -> str:
        """Its secondary status."""
        return str(self.transitions[-1]["Status"]) if self.transitions else ""

    def enter(self, secondary: Secondary, reason: str = "") -> None:
        """Enter a secondary status; `reason` is that of a failure."""
        with self.lock:
            moment = now()
            if self.transitions:
                self.transitions[-1]["EndTime"] = moment
            self.transitions.append({"Status": secondary, "StartTime": moment, "StatusMessage": _MESSAGES[secondary]})
            self.status = _PRIMARY.get(secondary, self.status)
            self.reason = reason[:_MOST_REASON] or self.reason
            if secondary == "Training":
                self.resumed = moment
                self.started = self.started or moment
            elif self.resumed is not None and (secondary == "Interrupted" or self.status in ENDED):
                self.trained += (moment - self.resumed).total_seconds()
                self.resumed = None
            if self.status in ENDED:
                self.ended = self.transitions[-1]["EndTime"] = moment

    def measure_training(self) -> float:
        """Return the seconds in which instances have trained, without those between interruption and restart."""
        with self.lock:
            running = (now() - self.resumed).total_seconds() if self.resumed else 0.0
            return self.trained + running

    def to_api(self) -> dict[str, Any]:
        """Return what DescribeTrainingJob answers."""
        with self.lock:
            answer = {name: value for name, value in self.request.items() if name not in _NOT_SHOWN}
            answer |= {
                "TrainingJobArn": self.arn,
                "TrainingJobStatus": self.status,
                "SecondaryStatus": self.secondary,
                "SecondaryStatusTransitions": [dict(entry) for entry in self.transitions],
                "CreationTime": self.created,
                "LastModifiedTime": self._modified(),
                "FailureReason": self.reason,
                "TrainingStartTime": self.started,
                "TrainingEndTime": self.ended if self.started else None,
            }
            if self.ended and self.started:
                # Of spot, the time between an interruption and the restart is no billed time.
                answer["TrainingTimeInSeconds"] = int((self.ended - self.started).total_seconds())
                answer["BillableTimeInSeconds"] = int(self.trained)
            if self.model:
                answer["ModelArtifacts"] = {"S3ModelArtifacts": self.model}
            if self.metrics:
                answer["FinalMetricDataList"] = [
                    {"MetricName": name, "Value": value, "Timestamp": at} for name, (value, at) in self.metrics.items()
                ]
            if self.pool is not None:
                answer["WarmPoolStatus"] = self.pool.to_api()
            return {name: value for name, value in answer.items() if value not in (None, "")}

    def summarize(self) -> dict[str, Any]:
        """Return its row of ListTrainingJobs."""
        with self.lock:
            row = {
                "TrainingJobName": self.name,
                "TrainingJobArn": self.arn,
                "CreationTime": self.created,
                "TrainingEndTime": self.ended if self.started else None,
                "LastModifiedTime": self._modified(),
                "TrainingJobStatus": self.status,
                "SecondaryStatus": self.secondary,
                "WarmPoolStatus": self.pool.to_api() if self.pool else None,
            }
            return {name: value for name, value in row.items() if value is not None}

    def _modified(self) -> datetime:
        return self.transitions[-1]["StartTime"] if self.transitions else self.created
