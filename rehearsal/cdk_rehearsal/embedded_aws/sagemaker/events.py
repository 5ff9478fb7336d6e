"""
Events of training jobs: each change of state, in the timeline and on the default event bus.

Source: developer guide, "Events that Amazon SageMaker AI sends to Amazon EventBridge", "Training job state change":
the detail is the answer of DescribeTrainingJob, with times in milliseconds.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.messaging.event_bus import build_event
from cdk_rehearsal.embedded_aws.sagemaker.job import TrainingJob
from cdk_rehearsal.place import Place

_log = logging.getLogger(__name__)
DETAIL_TYPE = "SageMaker Training Job State Change"


class TrainingEvents:
    """
    Reports changes as they happen, in their order.

    Attributes:
        send: Sends an event to the default event bus, once there is one.
    """

    def __init__(self, place: Place, observations: Observations) -> None:
        self._place = place
        self._observations = observations
        self.send: Callable[[dict[str, Any]], object] = lambda _: None
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, name="training-events", daemon=True)
        self._thread.start()

    def report(self, job: TrainingJob) -> None:
        """Report the state of a job."""
        text = f"training job {job.secondary}"
        is_failed = job.secondary == "Failed"
        self._observations.report("scaling", job.name, f"{text}: {job.reason}" if is_failed else text)
        detail = _plain({**job.to_api(), "Tags": job.tags})
        self._queue.put(build_event(self._place, "aws.sagemaker", DETAIL_TYPE, detail, [job.arn]))

    def close(self) -> None:
        """Deliver what is left and end."""
        self._queue.put(None)
        self._thread.join()

    def _deliver(self) -> None:
        # In a thread of its own: a target may ask SageMaker something.
        while (event := self._queue.get()) is not None:
            try:
                self.send(event)
            except Exception:  # noqa: BLE001, PERF203 - a defect of one target must not end the others
                _log.exception("an event of a training job was not delivered")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value
