"""Search in the log lines of a cluster's nodes and adjuster, merged by time."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError

from deeplearning_contract.log_record import ADJUSTER
from deeplearning_view.aws_reader import Clients
from deeplearning_view.aws_responses import AwsResponses, ViewError
from deeplearning_view.log_lines import LEVELS, Line, read_line
from deeplearning_view.resources import find_adjuster_log, find_node_log

EVERYBODY = "all"
_FOLLOW_SECONDS = 2.0
_LATE_SECONDS = 30
"""Delay with which CloudWatch Logs may return a line after later ones."""


@dataclass(frozen=True)
class Source:
    """Log group, or its streams whose name begins with a prefix."""

    group: str
    stream_prefix: str = ""


@dataclass
class LogSearch:
    """Search for the lines of sources that have at least a level, each once."""

    clients: Clients
    sources: Sequence[Source]
    level: str = "INFO"
    _seen: set[str] = field(default_factory=set)

    def read(self, since: float) -> list[Line]:
        """
        Return the lines since a time (seconds since the epoch) that were not returned before, oldest first.

        Raises:
            ViewError: A log group cannot be read.
        """
        lines = [line for source in self.sources for line in self._read_source(source, since)]
        return sorted((line for line in lines if is_loud(line, self.level)), key=lambda line: line.at)

    def follow(self, since: float, pause: Callable[[float], None] = time.sleep) -> Iterator[list[Line]]:
        """Yield the lines since a time, then new ones without end."""
        begin = since
        while True:
            looked = time.time()
            yield self.read(begin)
            begin = max(begin, looked - _LATE_SECONDS)
            pause(_FOLLOW_SECONDS)

    def _read_source(self, source: Source, since: float) -> Iterable[Line]:
        request = {"logGroupName": source.group, "startTime": int(since * 1000)}
        if source.stream_prefix:
            request["logStreamNamePrefix"] = source.stream_prefix
        try:
            pages = list(self.clients("logs").get_paginator("filter_log_events").paginate(**request))
        except (BotoCoreError, ClientError) as error:
            raise ViewError(
                f"the log group {source.group} cannot be read: {error}; request the permission logs:FilterLogEvents"
            ) from error
        for event in (event for page in pages for event in page["events"]):
            key = str(event["eventId"])
            if key not in self._seen and str(event["logStreamName"]).startswith(source.stream_prefix):
                self._seen.add(key)
                yield read_line(event)


def is_loud(line: Line, level: str) -> bool:
    """Return whether a line has a message and at least a level."""
    return bool(line.message) and LEVELS.index(line.level) >= LEVELS.index(level)


def choose_sources(responses: AwsResponses, node: str, instance_id: str, role: str) -> list[Source]:
    """
    Return the sources of `all`, of `adjuster`, or of a node: the stream of its instance id and role.

    Raises:
        ViewError: The stack has no such log group.
    """
    nodes, adjuster = find_node_log(responses.resources), find_adjuster_log(responses.resources)
    wanted = {EVERYBODY: [Source(nodes), Source(adjuster)], ADJUSTER: [Source(adjuster)]}
    sources = wanted.get(node, [Source(nodes, f"{role}/{instance_id}")])
    found = [source for source in sources if source.group]
    if not found:
        raise ViewError("the stack has no log group yet; wait until it is being created, or name another stack")
    return found
