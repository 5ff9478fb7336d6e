"""The default event bus: hands events to the functions and topics of the rules that match them."""

import json
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from cdk_rehearsal.embedded_aws.messaging.event_pattern import is_match, require_pattern
from cdk_rehearsal.embedded_aws.observation import Observations
from cdk_rehearsal.embedded_aws.place import Place
from cdk_rehearsal.errors import AssemblyError

_PLACEHOLDER = re.compile(r"<([A-Za-z0-9_-]+)>")

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

    Args:
        event: The event.
        transformer: `InputPathsMap`, whose paths name one field each, and `InputTemplate`, a JSON string.

    Raises:
        AssemblyError: The template is no JSON string, or names what has no path.
    """
    template = transformer["InputTemplate"]
    paths = transformer.get("InputPathsMap", {})
    text = json.loads(template) if template.startswith('"') else None
    if not isinstance(text, str) or (missing := set(_PLACEHOLDER.findall(text)) - set(paths)):
        wrong = template if not isinstance(text, str) else sorted(missing)
        raise AssemblyError(f"InputTemplate must be a JSON string whose names all have a path, got {wrong}")
    return _PLACEHOLDER.sub(lambda match: str(_find(event, paths[match[1]])), text)


def _find(event: Mapping[str, Any], path: str) -> Any:
    value: Any = event
    for name in path.removeprefix("$.").split("."):
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return value


class EventBus:
    """
    Knows the rules with a pattern.

    Args:
        place: Where the rules are; their state is read there at each event.
        deliver: Takes target, event and rule ARN.
        observations: Told every event. Default: nobody is.
    """

    def __init__(self, place: Place, deliver: EventDelivery, observations: Observations | None = None) -> None:
        self._place = place
        self._deliver = deliver
        self._observations = observations
        self._lock = threading.Lock()
        self._patterns: dict[tuple[str, str], Mapping[str, Any]] = {}

    def add_rule(self, name: str, arn: str, pattern: Mapping[str, Any]) -> None:
        """
        Begin to match events with a rule.

        Raises:
            AssemblyError: The pattern uses what is not implemented.
        """
        require_pattern(pattern)
        with self._lock:
            self._patterns[name, arn] = pattern

    def send(self, event: dict[str, Any]) -> int:
        """Hand an event to the targets of all rules that match it; return how many there were."""
        if self._observations is not None:
            reason = event["detail"].get("reason", "")
            self._observations.tell("message", event["source"], f"{event['detail-type']} {reason}".rstrip())
        with self._lock:
            matching = [rule for rule, pattern in self._patterns.items() if is_match(pattern, event)]
        deliveries = [(arn, target) for name, arn in matching for target in find_targets(self._place, name) or ()]
        for arn, target in deliveries:
            self._deliver(target, event, arn)
        return len(deliveries)
