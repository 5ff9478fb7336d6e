"""Writes what functions print to their log groups, as Lambda does: with the function's own role."""

import threading
import time
from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.place import Place

_MOST_LINES = 1_000
"""Of one invocation; CloudWatch Logs takes ten times as many in a call."""


class FunctionLog:
    """
    The log of one function.

    Args:
        place: Where it is.
        runtime: The function's environment, which has its role's credentials and the stream's name.
        log_group: Name of its log group.
    """

    def __init__(self, place: Place, runtime: Mapping[str, str], log_group: str) -> None:
        self._logs: Any = place.client_as(
            "logs",
            access_key_id=runtime["AWS_ACCESS_KEY_ID"],
            secret_access_key=runtime["AWS_SECRET_ACCESS_KEY"],
            session_token=runtime["AWS_SESSION_TOKEN"],
        )
        self._place = {"logGroupName": log_group, "logStreamName": runtime["AWS_LAMBDA_LOG_STREAM_NAME"]}
        self._lock = threading.Lock()
        self._has_stream = False

    def write(self, text: str) -> None:
        """
        Write a line a log event.

        Raises:
            ClientError: The role may not.
        """
        now = int(time.time() * 1000)
        events = [{"timestamp": now, "message": line} for line in text.splitlines() if line.strip()]
        if not events:
            return
        with self._lock:
            if not self._has_stream:
                self._logs.create_log_stream(**self._place)
                self._has_stream = True
            self._logs.put_log_events(**self._place, logEvents=events[-_MOST_LINES:])
