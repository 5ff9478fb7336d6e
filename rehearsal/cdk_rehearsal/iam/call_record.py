"""Record of the decisions about calls: each once, with its count."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.iam.evaluation import Decision, explain_denial
from cdk_rehearsal.iam.request import Request

_MOST = 4000
"""Distinct calls; further ones are counted alone."""


@dataclass(frozen=True)
class RecordedCall:
    """One decision about an action, `service:Action`, on a resource: its ARN, or `*`."""

    kind: str
    """Kind of the caller: the label of an instance, `lambda`, `other`, or `service`."""
    role_arn: str
    """The caller's role; the service's name for a service that has none."""
    action: str
    resource: str
    context: tuple[tuple[str, tuple[str, ...]], ...]
    """Values of the condition keys that a policy reads."""
    is_allowed: bool
    is_implied: bool = False
    """True where a service called on the caller's behalf."""

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "kind": self.kind,
            "role": self.role_arn,
            "action": self.action,
            "resource": self.resource,
            "conditions": {key: list(values) for key, values in self.context},
            "allowed": self.is_allowed,
            "implied": self.is_implied,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "RecordedCall":
        """Read what `to_document` wrote."""
        context = tuple((key, tuple(values)) for key, values in document["conditions"].items())
        kind, role, action, resource = (str(document[name]) for name in ("kind", "role", "action", "resource"))
        return cls(kind, role, action, resource, context, document["allowed"], document["implied"])


class CallRecord:
    """Counts distinct calls, and keeps the messages of those that were denied; calls come from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[RecordedCall, int] = {}
        self._denials: dict[tuple[str, str], str] = {}
        self.left_out = 0

    def add(self, kind: str, request: Request, decision: Decision, *, is_implied: bool = False) -> None:
        """Record a decision."""
        context = tuple((key, request.context[key]) for key in sorted(decision.keys & request.context.keys()))
        role = request.caller.role_arn or request.caller.service
        call = RecordedCall(kind, role, request.action, request.resource, context, decision.is_allowed, is_implied)
        with self._lock:
            if call in self._counts or len(self._counts) < _MOST:
                self._counts[call] = self._counts.get(call, 0) + 1
            else:
                self.left_out += 1
            if not decision.is_allowed:
                self._denials.setdefault((kind, request.action), explain_denial(request, decision))

    def refuse(self, kind: str, operation: str, message: str) -> None:
        """Record a call whose rights are not known."""
        with self._lock:
            self._denials.setdefault((kind, operation), message)

    def counts(self) -> dict[RecordedCall, int]:
        """Return how often each call was made."""
        with self._lock:
            return dict(self._counts)

    def denials(self) -> dict[str, str]:
        """Return each action that was denied, with the first message."""
        with self._lock:
            return {action: message for (_, action), message in self._denials.items()}
