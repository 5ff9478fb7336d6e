"""
Records every AWS API call, by operation and by who made it.

Calls of an image's own SSM agent, and of Lambda for a function's log, are not counted with those of the cluster's
programs.
"""

import re
import threading
from collections import Counter
from dataclasses import dataclass

from cdk_rehearsal.embedded_aws.base.principals import Principal


@dataclass(frozen=True)
class Call:
    """One AWS API call, `service.Operation`, of an instance or function."""

    at: float
    """Monotonic time of its end, in seconds."""
    operation: str
    kind: str
    name: str
    status: int


UNIMPLEMENTED = 501
"""Status of a call that the rehearsal could not carry out."""
_AGENT_OPERATION = re.compile(r"ssmmessages\.|ssm\.UpdateInstanceInformation$")
_FUNCTION_LOG_OPERATION = re.compile(r"logs\.")


@dataclass(frozen=True)
class CallCounts:
    """Counted calls of nodes and functions; neither the rehearsal's own nor those of SSM agents are among them."""

    total: int
    by_operation: dict[str, int]
    by_kind: dict[str, int]
    by_name: dict[str, int]


class CallLog:
    """Keeps the calls of nodes and functions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    def record(self, at: float, operation: str, principal: Principal, status: int) -> None:
        """Record a call that was answered, unless the rehearsal itself made it."""
        if principal.kind != "operator":
            with self._lock:
                self._calls.append(Call(at, operation, principal.kind, principal.name, status))

    def count(self, *, until: float | None = None) -> CallCounts:
        """Count the calls of nodes and functions, those that ended up to a monotonic time or all."""
        with self._lock:
            calls = list(self._calls)
        calls = [call for call in calls if (until is None or call.at <= until) and not _is_of_platform(call)]
        return CallCounts(
            total=len(calls),
            by_operation=dict(sorted(Counter(call.operation for call in calls).items())),
            by_kind=dict(sorted(Counter(call.kind for call in calls).items())),
            by_name=dict(sorted(Counter(call.name for call in calls).items())),
        )

    def find_defects(self) -> list[str]:
        """Return the calls of nodes and functions that the rehearsal could not carry out, each once."""
        with self._lock:
            calls = [call for call in self._calls if call.status == UNIMPLEMENTED and not _is_of_platform(call)]
        said = (f"the rehearsal could not carry out {call.operation} of {call.kind} {call.name}" for call in calls)
        return list(dict.fromkeys(said))


def _is_of_platform(call: Call) -> bool:
    is_function_log = call.kind == "lambda" and _FUNCTION_LOG_OPERATION.match(call.operation)
    return bool(_AGENT_OPERATION.match(call.operation) or is_function_log)
