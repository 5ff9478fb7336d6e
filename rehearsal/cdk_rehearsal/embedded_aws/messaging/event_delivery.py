"""Hands the events that nodes and functions put on the default bus to the rules of the stack."""

import copy
import json
import threading
from typing import Any

from moto.events.models import EventsBackend, Rule

from cdk_rehearsal.embedded_aws.messaging.event_bus import EventBus, build_event
from cdk_rehearsal.embedded_aws.place import Place

_moto_put = EventsBackend.put_events
_moto_send = Rule.send_to_targets
_DEFAULT = "default"
_MOTO_TARGETS = (":sqs:", ":logs:")
"""What moto delivers to; at any other target its call fails."""


def _send_to_targets(self: Rule, original_event: Any, transform_input: bool = True) -> None:  # noqa: FBT001, FBT002 - moto's
    rule = copy.copy(self)
    rule.targets = [target for target in self.targets if any(part in target["Arn"] for part in _MOTO_TARGETS)]
    _moto_send(rule, original_event, transform_input)


def install_event_delivery(bus: EventBus, place: Place) -> None:
    """
    Replace moto's `PutEvents`, which knows neither functions nor topics.

    As with EventBridge, the call ends before anything is delivered.

    Args:
        bus: Knows the rules of the stack.
        place: Where it is.
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
    Rule.send_to_targets = _send_to_targets  # type: ignore[method-assign]
