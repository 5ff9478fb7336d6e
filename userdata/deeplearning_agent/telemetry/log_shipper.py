"""Ships a node's lines to CloudWatch Logs, few calls at a time, and fails nobody."""

import logging
import time
from collections.abc import Sequence
from typing import Any

from deeplearning_agent.telemetry.log_queue import LogQueue, QueuedLine
from deeplearning_agent.telemetry.rate_limit import Pace
from deeplearning_contract.log_record import LogLine
from deeplearning_node.aws_clients import AwsClients, describe_aws_error
from deeplearning_node.aws_errors import AwsError, error_code, is_denied, is_passing
from deeplearning_node.deadline import Clock, Deadline

LOG = logging.getLogger(__name__)
PACE_SECONDS = 10.0
"""Between two calls, unless something is urgent."""
FIRST_SECONDS = 1.0
"""Until the first one: the first lines show that the node is there."""
MOST_EARLY = 3
_GONE = "ResourceNotFoundException"
_EXISTS = "ResourceAlreadyExistsException"


class LogShipper:
    """The way out of a node's lines. One thread calls it."""

    def __init__(self, clients: AwsClients, queue: LogQueue, group: str, clock: Clock) -> None:
        """Bind the queue to a log group, in which the speaker has its stream; nothing is called yet."""
        self._clients = clients
        self._queue = queue
        self._names = {"logGroupName": group, "logStreamName": queue.speaker.stream}
        self._has_stream = False
        self._pace = Pace(clock, PACE_SECONDS, first=FIRST_SECONDS, most_early=MOST_EARLY)

    def ship(self, *, is_urgent: bool = False) -> None:
        """Make the call that is due, if one is, or an urgent one before its time; raises nothing that AWS can cause."""
        if self._queue.has_lines and self._pace.begin(is_urgent=is_urgent):
            self._try()

    def finish(self, deadline: Deadline) -> None:
        """Ship what is left, until AWS refuses or the time is over: the last lines before an end matter most."""
        while self._queue.has_lines and not deadline.is_over and self._try():
            pass

    def _try(self) -> bool:
        lines, dropped = self._queue.take()
        try:
            self._put(lines, dropped)
        except AwsError as error:
            self._fail(error, lines, dropped)
            return False
        except BaseException:
            self._queue.restore(lines, dropped)
            self._pace.fail()
            raise
        self._pace.succeed()
        return True

    def _put(self, lines: Sequence[QueuedLine], dropped: int) -> None:
        if not self._has_stream:
            try:
                self._clients.logs.create_log_stream(**self._names)
            except AwsError as error:
                if error_code(error) != _EXISTS:
                    raise
            self._has_stream = True
        sent = [*self._tell_dropped(lines, dropped), *lines]
        events = [{"timestamp": int(line.at * 1000), "message": line.text} for line in sent]
        answer = self._clients.logs.put_log_events(**self._names, logEvents=events)
        rejected, is_first_among = find_rejected(answer.get("rejectedLogEventsInfo") or {}, len(sent))
        # Where the line that tells of them is among the rejected, those that it tells of are still untold.
        self._queue.count_dropped(rejected - 1 + dropped if dropped and is_first_among else rejected)

    def _tell_dropped(self, lines: Sequence[QueuedLine], dropped: int) -> list[QueuedLine]:
        if not dropped:
            return []
        at = lines[0].at if lines else time.time()
        line = LogLine(
            time=at,
            level="WARNING",
            speaker=self._queue.speaker,
            generation=self._queue.generation,
            logger=__name__,
            message=f"{dropped} log lines before this one were dropped: CloudWatch Logs did not take them",
            details={"dropped": dropped},
        )
        return [QueuedLine(at, line.to_text())]

    def _fail(self, error: Exception, lines: Sequence[QueuedLine], dropped: int) -> None:
        """Keep what may be taken later; what AWS refuses as such is dropped, or it would be in the way for ever."""
        is_gone = error_code(error) == _GONE
        if is_gone:
            self._has_stream = False
        if is_gone or is_passing(error) or is_denied(error):
            self._queue.restore(lines, dropped)
        else:
            self._queue.count_dropped(dropped + len(lines))
        if self._pace.failures == 0:  # Once an outage.
            LOG.warning("the log is not shipped for now: %s", describe_aws_error(error))
        self._pace.fail()


def find_rejected(info: dict[str, Any], number: int) -> tuple[int, bool]:
    """
    Return how many of the sent lines CloudWatch Logs rejected as too old or too new, and whether the first is among
    them.
    """
    old = max(int(info.get("tooOldLogEventEndIndex", 0)), int(info.get("expiredLogEventEndIndex", 0)))
    new = min(number, int(info.get("tooNewLogEventStartIndex", number)))
    return min(number, old + number - new), old > 0 or new == 0
