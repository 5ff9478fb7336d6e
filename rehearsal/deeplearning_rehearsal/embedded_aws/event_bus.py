"""The default event bus: hands events of AWS services to the functions of the rules that match them."""

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from deeplearning_rehearsal.embedded_aws.event_pattern import is_match, require_pattern
from deeplearning_rehearsal.embedded_aws.place import Place

EventDelivery = Callable[[str, dict[str, Any], str], None]
"""Takes function ARN, event and rule ARN."""


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


def find_targets(place: Place, rule: str) -> list[str] | None:
    """Return the ARNs of a rule's targets, none while it is disabled; None when there is no such rule any more."""
    events = place.client("events")
    try:
        if events.describe_rule(Name=rule)["State"] != "ENABLED":
            return []
        return [target["Arn"] for target in events.list_targets_by_rule(Rule=rule)["Targets"]]
    except events.exceptions.ResourceNotFoundException:
        return None


class EventBus:
    """
    Knows the rules with a pattern.

    Args:
        place: Where the rules are; their state is read there at each event.
        deliver: Takes function ARN, event and rule ARN.
    """

    def __init__(self, place: Place, deliver: EventDelivery) -> None:
        self._place = place
        self._deliver = deliver
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
        with self._lock:
            matching = [rule for rule, pattern in self._patterns.items() if is_match(pattern, event)]
        deliveries = [(arn, target) for name, arn in matching for target in find_targets(self._place, name) or ()]
        for arn, target in deliveries:
            self._deliver(target, event, arn)
        return len(deliveries)
