"""Shipping of a node's log lines to CloudWatch Logs and events to EventBridge; AWS failures never reach the agent."""

import logging
import time
from collections.abc import Sequence
from typing import Any

from deeplearning_agent.telemetry.log_records import LogQueue, QueuedLine
from deeplearning_contract.cluster_event import put_events_request
from deeplearning_contract.log_record import LogLine
from deeplearning_node.aws_clients import AwsClients, describe_aws_error
from deeplearning_node.aws_errors import AwsError, error_code, is_denied, is_passing
from deeplearning_node.deadline import Clock, Deadline

LOG = logging.getLogger(__name__)
PACE_SECONDS = 10.0
"""Pause between two calls, unless a line is urgent."""
FIRST_SECONDS = 1.0
"""Pause before the first call: the first lines show that the node runs."""
MOST_EARLY = 3
EARLY_SECONDS = 60.0
"""Time after which one more call may come early."""
LONGEST_PAUSE_SECONDS = 120.0
EVENT_RETRY_SECONDS = 10.0
MOST_EVENT_ATTEMPTS = 20
"""Half an hour, with the pauses between them."""
EVENTS_A_CALL = 10
"""EventBridge's limit."""
_GONE = "ResourceNotFoundException"
_EXISTS = "ResourceAlreadyExistsException"


class RateLimit:
    """Rate limit of one kind of call: some calls may come early; failures double the pause."""

    def __init__(self, clock: Clock, seconds: float, *, first: float = 0.0, most_early: int = 0) -> None:
        """Allow a call each `seconds`, the first one after `first`, and up to `most_early` early ones in a row."""
        self._clock = clock
        self._seconds = seconds
        self._most_early = most_early
        self._next = clock.read() + first
        self._early = float(most_early)
        self._counted = clock.read()
        self.failures = 0
        """Number of failed calls in a row."""

    def begin(self, *, is_urgent: bool = False) -> bool:
        """Return whether a call may start now, and count it if so; while calls fail, no call is urgent."""
        now = self._clock.read()
        self._early = min(self._most_early, self._early + (now - self._counted) / EARLY_SECONDS)
        self._counted = now
        if now < self._next:
            if not is_urgent or self.failures or self._early < 1:
                return False
            self._early -= 1
        self._next = now + self._seconds
        return True

    def succeed(self) -> None:
        self.failures = 0

    def fail(self) -> None:
        """Record a failed call; the pause before the next one doubles."""
        pause = min(LONGEST_PAUSE_SECONDS, self._seconds * 2**self.failures)
        self.failures += 1
        self._next = self._clock.read() + pause


class LogShipper:
    """Sender of a node's lines to one log stream; for one thread."""

    def __init__(self, clients: AwsClients, queue: LogQueue, group: str, clock: Clock) -> None:
        """Bind the queue to a log group, in which the node has its stream; nothing is called yet."""
        self._clients = clients
        self._queue = queue
        self._names = {"logGroupName": group, "logStreamName": queue.speaker.stream}
        self._has_stream = False
        self._pace = RateLimit(clock, PACE_SECONDS, first=FIRST_SECONDS, most_early=MOST_EARLY)

    def ship(self, *, is_urgent: bool = False) -> None:
        """Make a call if one is due, or an urgent one early; raises nothing that AWS can cause."""
        if self._queue.has_lines and self._pace.begin(is_urgent=is_urgent):
            self._try()

    def finish(self, deadline: Deadline) -> None:
        """Ship the remaining lines until AWS refuses or the deadline: the last lines before an end matter most."""
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
        sent = [*self._add_dropped_notice(lines, dropped), *lines]
        events = [{"timestamp": int(line.at * 1000), "message": line.text} for line in sent]
        answer = self._clients.logs.put_log_events(**self._names, logEvents=events)
        rejected, is_first_among = find_rejected(answer.get("rejectedLogEventsInfo") or {}, len(sent))
        # When the notice of dropped lines was itself rejected, the lines that it counts are still unreported.
        self._queue.count_dropped(rejected - 1 + dropped if dropped and is_first_among else rejected)

    def _add_dropped_notice(self, lines: Sequence[QueuedLine], dropped: int) -> list[QueuedLine]:
        if not dropped:
            return []
        at = lines[0].at if lines else time.time()
        line = LogLine(
            time=at,
            level="WARNING",
            speaker=self._queue.speaker,
            generation=self._queue.generation,
            logger=__name__,
            message=f"{dropped} log lines before this one were dropped: CloudWatch Logs refused them",
            details={"dropped": dropped},
        )
        return [QueuedLine(at, line.to_text())]

    def _fail(self, error: Exception, lines: Sequence[QueuedLine], dropped: int) -> None:
        """
        Keep lines for a retry; lines that AWS refuses as invalid are dropped, or they would block the others for ever.
        """
        is_gone = error_code(error) == _GONE
        if is_gone:
            self._has_stream = False
        if is_gone or is_passing(error) or is_denied(error):
            self._queue.restore(lines, dropped)
        else:
            self._queue.count_dropped(dropped + len(lines))
        if self._pace.failures == 0:  # Log once an outage.
            LOG.warning("could not ship the log; retrying: %s", describe_aws_error(error))
        self._pace.fail()


def find_rejected(info: dict[str, Any], number: int) -> tuple[int, bool]:
    """Return how many lines CloudWatch Logs rejected as too old or too new, and whether the first is among them."""
    old = max(int(info.get("tooOldLogEventEndIndex", 0)), int(info.get("expiredLogEventEndIndex", 0)))
    new = min(number, int(info.get("tooNewLogEventStartIndex", number)))
    return min(number, old + number - new), old > 0 or new == 0


class EventSender:
    """Sender of a node's events to the account's default bus; for one thread."""

    def __init__(self, clients: AwsClients, queue: LogQueue, clock: Clock) -> None:
        self._clients = clients
        self._queue = queue
        self._retry = RateLimit(clock, EVENT_RETRY_SECONDS)

    def send(self) -> None:
        """Send the waiting events; raises nothing that AWS or the network can cause."""
        if not self._queue.has_events or (self._retry.failures and not self._retry.begin()):
            return
        events = self._queue.take_events()
        try:
            answer = self._clients.events.put_events(**put_events_request(*events[:EVENTS_A_CALL]))
        except Exception as error:  # noqa: BLE001 - the next attempt must not follow at once
            self._retry.fail()
            if self._retry.failures == 1:
                LOG.warning("could not send events; retrying: %s", describe_aws_error(error))
            if self._retry.failures < MOST_EVENT_ATTEMPTS:
                self._queue.restore_events(events)
            else:
                LOG.warning("dropped %d events: %s", len(events), describe_aws_error(error))
            return
        self._retry.succeed()
        self._queue.restore_events(events[EVENTS_A_CALL:])
        for entry in answer.get("Entries", []):
            if entry.get("ErrorCode"):
                LOG.warning("EventBridge refused an event: %s %s", entry["ErrorCode"], entry.get("ErrorMessage", ""))
