"""EventBridge: the default event bus and scheduled rules, which hand events to their targets."""

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any

from moto.events.models import EventsBackend, Rule

from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.messaging.cron import Cron
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.place import Place

_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "prefix": lambda value, wanted: value.startswith(wanted),
    "suffix": lambda value, wanted: value.endswith(wanted),
    "wildcard": lambda value, wanted: re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), value) is not None,
}
_LISTING = " and ".join(sorted(_OPERATORS))
_PLAIN = (str, int, float, bool, type(None))


def require_pattern(pattern: Any, path: str = "EventPattern") -> None:
    """Raise AssemblyError, with the path in the template, for what is no pattern or cannot be matched here."""
    if not isinstance(pattern, Mapping) or not pattern:
        raise AssemblyError(f"{path} must be an object with keys, got {pattern!r}; name what must match")
    for key, part in pattern.items():
        if key.startswith("$"):
            raise AssemblyError(f"{path} must not use {key} in the rehearsal; it matches lists, {_LISTING}")
        if not isinstance(part, list):
            require_pattern(part, f"{path}.{key}")
            continue
        if not part:
            raise AssemblyError(f"{path}.{key} must list at least one value, got []; an empty list matches nothing")
        for wanted in part:
            _require_value(wanted, f"{path}.{key}")


def is_match(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Return whether an event has every field of a pattern with one of its values."""
    for key, part in pattern.items():
        if key not in event:
            return False
        value = event[key]
        found = value if isinstance(value, list) else [value]
        if isinstance(part, Mapping):
            if not isinstance(value, Mapping) or not is_match(part, value):
                return False
        elif not any(_fits(wanted, entry) for wanted in part for entry in found):
            return False
    return True


def _require_value(wanted: Any, path: str) -> None:
    if isinstance(wanted, _PLAIN):
        return
    is_operator = isinstance(wanted, Mapping) and len(wanted) == 1
    name, value = next(iter(wanted.items())) if is_operator else (str(wanted), None)
    if name not in _OPERATORS or not isinstance(value, str):
        raise AssemblyError(f"{path} must use plain values, {_LISTING} in the rehearsal, got {wanted!r}")


def _fits(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping):
        name, value = next(iter(wanted.items()))
        return isinstance(found, str) and _OPERATORS[name](found, value)
    return type(wanted) is type(found) and bool(wanted == found)


_PLACEHOLDER = re.compile(r"<([A-Za-z0-9_-]+)>")
_ANY_PLACEHOLDER = re.compile(r"<([A-Za-z0-9_.-]+)>")
_PREDEFINED = "aws.events."
"""Start of the names that EventBridge itself defines."""

EventDelivery = Callable[[Mapping[str, Any], dict[str, Any], str], None]
"""Takes target, event and rule ARN."""


def build_event(
    place: Place, source: str, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str]
) -> dict[str, Any]:
    """Return an event with EventBridge's envelope."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": detail_type,
        "source": source,
        "account": place.account,
        "time": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": place.region,
        "resources": list(resources),
        "detail": dict(detail),
    }


def find_targets(place: Place, rule: str) -> list[Mapping[str, Any]] | None:
    """Return a rule's targets, none while it is disabled; None when there is no such rule any more."""
    events = place.client("events")
    try:
        if events.describe_rule(Name=rule)["State"] != "ENABLED":
            return []
        return list(events.list_targets_by_rule(Rule=rule)["Targets"])
    except events.exceptions.ResourceNotFoundException:
        return None


def transform(event: Mapping[str, Any], transformer: Mapping[str, Any]) -> str:
    """
    Return the text that a target's input transformer makes of an event.

    The paths of `InputPathsMap` name one field each. Raise AssemblyError where `InputTemplate` is no JSON string, or
    names what has no path.
    """
    template = transformer["InputTemplate"]
    paths = transformer.get("InputPathsMap", {})
    text = json.loads(template) if template.startswith('"') else None
    if not isinstance(text, str) or (missing := set(_PLACEHOLDER.findall(text)) - set(paths)):
        wrong = template if not isinstance(text, str) else sorted(missing)
        raise AssemblyError(f"InputTemplate must be a JSON string whose names all have a path, got {wrong}")
    return _PLACEHOLDER.sub(lambda match: str(_find(event, paths[match[1]])), text)


def require_placeholders(target: Mapping[str, Any]) -> None:
    """
    Raise ValueError where the input transformer of a target names what has no path.

    PutTargets refuses it (EventBridge user guide, "Common issues with transforming input"); its words are not public.
    """
    transformer = target.get("InputTransformer", {})
    named = set(_ANY_PLACEHOLDER.findall(str(transformer.get("InputTemplate", ""))))
    unknown = sorted(
        name for name in named - set(transformer.get("InputPathsMap", {})) if not name.startswith(_PREDEFINED)
    )
    if unknown:
        raise ValueError(
            f"InputTemplate of target {target['Id']} must name placeholders of InputPathsMap alone, got "
            f"{', '.join(unknown)}; add a path for each"
        )


def _find(event: Mapping[str, Any], path: str) -> Any:
    value: Any = event
    for name in path.removeprefix("$.").split("."):
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return value


class EventBus:
    """Matches events with the rules that have a pattern; their state is read at each event."""

    def __init__(self, place: Place, deliver: EventDelivery, observations: Observations) -> None:
        self._place = place
        self._deliver = deliver
        self._observations = observations
        self._lock = threading.Lock()
        self._patterns: dict[tuple[str, str], Mapping[str, Any]] = {}

    def add_rule(self, name: str, arn: str, pattern: Mapping[str, Any]) -> None:
        """Begin to match events with a rule; raise AssemblyError for a pattern that is not implemented."""
        require_pattern(pattern)
        with self._lock:
            self._patterns[name, arn] = pattern

    def send(self, event: dict[str, Any]) -> int:
        """Show an event in the timeline, and hand it to the targets of all rules that match; return their number."""
        message = event["detail"].get("message", "")
        self._observations.report("message", event["source"], f"{event['detail-type']} {message}".rstrip())
        return self.deliver(event)

    def deliver(self, event: dict[str, Any]) -> int:
        """Hand an event to the targets of all rules that match it; return their number."""
        with self._lock:
            matching = [rule for rule, pattern in self._patterns.items() if is_match(pattern, event)]
        deliveries = [(arn, target) for name, arn in matching for target in find_targets(self._place, name) or ()]
        for arn, target in deliveries:
            self._deliver(target, event, arn)
        return len(deliveries)


_moto_put = EventsBackend.put_events
_DEFAULT = "default"


def install_event_delivery(bus: EventBus, place: Place) -> None:
    """
    Replace moto's `PutEvents`, which knows neither functions nor topics, and no queue's policy.

    As with EventBridge, the call ends before anything is delivered.
    """

    def put_events(self: EventsBackend, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        answers = _moto_put(self, events)
        for asked, answer in zip(events, answers, strict=True):
            if "EventId" in answer and asked.get("EventBusName", _DEFAULT).rpartition("/")[2] == _DEFAULT:
                detail, resources = json.loads(asked["Detail"]), asked.get("Resources", [])
                event = build_event(place, asked["Source"], asked["DetailType"], detail, resources)
                threading.Thread(target=bus.send, args=(event,), name="deliver an event", daemon=True).start()
        return answers

    EventsBackend.put_events = put_events  # type: ignore[method-assign]
    Rule.send_to_targets = lambda *_, **__: None  # type: ignore[method-assign]


_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_LATE_SECONDS = 0.1
"""After the begin of a minute, so that no wait ends in the one before; EventBridge may be a minute late."""
_MINUTES = {"minute": 1, "hour": 60, "day": 1440}


def parse_rate(expression: str) -> int:
    """Return the minutes of a rate expression; raise AssemblyError for any other expression."""
    match = _RATE.fullmatch(expression)
    if match is None or int(match[1]) < 1:
        raise AssemblyError(
            f"ScheduleExpression must be rate(n minutes) or cron(…), got {expression!r}; see EventBridge's user guide"
        )
    return int(match[1]) * _MINUTES[match[2]]


class Schedule:
    """
    Runs the rules with a schedule; a rule that is disabled at a tick is silent.

    The minutes of rates have so many seconds; cron expressions come due by this machine's clock.
    """

    def __init__(self, place: Place, deliver: EventDelivery, minute_seconds: float = 60.0) -> None:
        self._place = place
        self._deliver = deliver
        self._minute = minute_seconds
        self._closing = threading.Event()

    def add_rule(self, name: str, arn: str, expression: str) -> None:
        """Begin to tick a rule; the first tick of a rate comes one period after its creation."""
        if expression.startswith("cron("):
            wait: Callable[[], bool] = partial(self._wait_until_due, Cron(expression))
        else:
            wait = partial(self._closing.wait, parse_rate(expression) * self._minute)
        threading.Thread(target=self._tick, args=(name, arn, wait), name=f"rule-{name}", daemon=True).start()

    def close(self) -> None:
        """Stop every rule."""
        self._closing.set()

    def _wait_until_due(self, cron: Cron) -> bool:
        """Wait for the next minute at which a rule comes due; return whether the schedule ends before."""
        while not self._closing.wait(60 - time.time() % 60 + _LATE_SECONDS):
            if cron.is_due(datetime.now(timezone.utc)):
                return False
        return True

    def _tick(self, name: str, arn: str, wait: Callable[[], bool]) -> None:
        while not wait():
            targets = find_targets(self._place, name)
            if targets is None:
                return  # deleted by a rollback
            for target in targets:
                self._deliver(target, build_event(self._place, "aws.events", "Scheduled Event", {}, [arn]), arn)
