"""Ticks EventBridge rules that have a rate, from the moment of their creation."""

import re
import threading

from cdk_rehearsal.embedded_aws.messaging.event_bus import EventDelivery, build_event, find_targets
from cdk_rehearsal.embedded_aws.place import Place
from cdk_rehearsal.errors import AssemblyError

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_MINUTES = {"minute": 1, "hour": 60, "day": 1440}


def parse_rate(expression: str) -> int:
    """
    Return the minutes of a rate expression.

    Raises:
        AssemblyError: The expression is not a rate.
    """
    match = _RATE.fullmatch(expression)
    if match is None or int(match[1]) < 1:
        raise AssemblyError(
            f"ScheduleExpression must be a rate in the rehearsal, got {expression!r}; use rate(n minutes)"
        )
    return int(match[1]) * _MINUTES[match[2]]


class Schedule:
    """
    Runs the rules of the lab.

    Args:
        place: Where the rules are; their state is read there at each tick, so that a disabled rule is silent.
        deliver: Takes target, event and rule ARN.
        minute_seconds: Length of a minute, in seconds. Default: 60.
    """

    def __init__(self, place: Place, deliver: EventDelivery, minute_seconds: float = 60.0) -> None:
        self._place = place
        self._deliver = deliver
        self._minute = minute_seconds
        self._closing = threading.Event()

    def add_rule(self, name: str, arn: str, expression: str) -> None:
        """Begin to tick a rule; the first tick comes one period after its creation."""
        period = parse_rate(expression) * self._minute
        threading.Thread(target=self._tick, args=(name, arn, period), name=f"rule-{name}", daemon=True).start()

    def close(self) -> None:
        """Stop every rule."""
        self._closing.set()

    def _tick(self, name: str, arn: str, period: float) -> None:
        while not self._closing.wait(period):
            targets = find_targets(self._place, name)
            if targets is None:
                return  # deleted by a rollback
            for target in targets:
                self._deliver(target, build_event(self._place, "aws.events", "Scheduled Event", {}, [arn]), arn)
