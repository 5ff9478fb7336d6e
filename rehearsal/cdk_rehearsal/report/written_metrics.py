"""Metrics that CloudWatch would have of a rehearsed cluster: those in its log lines, and AWS's as the lab sees them."""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.embedded_aws.functions.runner import Invocation
from cdk_rehearsal.place import Place

Point = tuple[float, float]
"""Time in seconds since the epoch, and value."""
_Key = tuple[str, str, frozenset[tuple[str, str]]]


@dataclass
class WrittenMetrics:
    """
    Metrics by namespace, name and dimensions, and the log lines that carry them.

    Attributes:
        lines: The log lines that are JSON objects, oldest first.
    """

    lines: list[Mapping[str, Any]] = field(default_factory=list)
    _points: dict[_Key, list[Point]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def from_messages(cls, messages: Iterable[str]) -> "WrittenMetrics":
        """Read log lines as CloudWatch does: those in the embedded metric format make metrics, others do not."""
        written = cls()
        for message in messages:
            try:
                line = json.loads(message)
            except ValueError:
                continue
            if isinstance(line, dict):
                written.lines.append(line)
                written._read(line)
        written.lines.sort(key=lambda line: str(line.get("time", "")))
        return written

    def add(self, namespace: str, name: str, dimensions: Mapping[str, str], point: Point) -> None:
        """Add a point."""
        self._points[namespace, name, frozenset(dimensions.items())].append(point)

    def find(self, namespace: str, name: str, dimensions: Mapping[str, str]) -> list[Point]:
        """Return the points of a metric in order; none when it was never written."""
        return sorted(self._points.get((namespace, name, frozenset(dimensions.items())), ()))

    def search(
        self, namespace: str, name: str, names: Sequence[str], fixed: Mapping[str, str]
    ) -> dict[str, list[Point]]:
        """
        Return the points of every metric of a name that has just these dimensions.

        Args:
            namespace: Its namespace.
            name: Its name.
            names: Names of its dimensions.
            fixed: Values of some of them.

        Returns:
            Values of the others -> points.
        """
        found = {}
        for (space, metric, dimensions), points in self._points.items():
            values = dict(dimensions)
            if (space, metric, set(values)) == (namespace, name, set(names)) and fixed.items() <= values.items():
                label = " ".join(values[other] for other in names if other not in fixed)
                found[label] = sorted(points)
        return dict(sorted(found.items()))

    def span(self) -> tuple[float, float]:
        """Return when the first and the last point were written; twice 0 without any."""
        moments = [at for points in self._points.values() for at, _ in points]
        return (min(moments), max(moments)) if moments else (0.0, 0.0)

    def _read(self, line: Mapping[str, Any]) -> None:
        embedded = line.get("_aws")
        if not isinstance(embedded, dict):
            return
        at = embedded["Timestamp"] / 1000
        for directive in embedded["CloudWatchMetrics"]:
            for names in directive["Dimensions"]:
                dimensions = {name: str(line[name]) for name in names}
                for metric in directive["Metrics"]:
                    self.add(directive["Namespace"], metric["Name"], dimensions, (at, float(line[metric["Name"]])))


def read_written_metrics(aws: EmbeddedAws) -> WrittenMetrics:
    """
    Read what nodes and functions wrote until now, how functions ran, and what waits in queues.

    Args:
        aws: The account.
    """
    written = WrittenMetrics.from_messages(_read_messages(aws.place))
    for invocation in aws.invocations():
        _add_invocation(written, invocation)
    _add_queues(written, aws.place)
    return written


def _read_messages(place: Place) -> Iterable[str]:
    logs = place.client("logs")
    for group in logs.get_paginator("describe_log_groups").paginate().search("logGroups[].logGroupName"):
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group)
        yield from pages.search("events[].message")


def _add_invocation(written: WrittenMetrics, invocation: Invocation) -> None:
    """Add what Lambda measures of an invocation that took place."""
    if not invocation.attempt:
        return
    dimensions = {"FunctionName": invocation.function}
    at = time.time() - time.monotonic() + invocation.at
    written.add("AWS/Lambda", "Errors", dimensions, (at, float(bool(invocation.error))))
    written.add("AWS/Lambda", "Duration", dimensions, (at, invocation.seconds * 1000))


def _add_queues(written: WrittenMetrics, place: Place) -> None:
    sqs = place.client("sqs")
    for url in sqs.list_queues().get("QueueUrls", ()):
        name = "ApproximateNumberOfMessages"
        count = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name]
        dimensions = {"QueueName": url.rpartition("/")[2]}
        written.add("AWS/SQS", "ApproximateNumberOfMessagesVisible", dimensions, (time.time(), float(count)))
