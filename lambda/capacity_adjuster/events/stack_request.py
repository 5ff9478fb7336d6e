"""
Requests of CloudFormation, for which the adjuster is the function of `Custom::RequestedCapacity`.

CloudFormation sends one once the groups and everything that nodes need exist, another when the counts change, and one
before it deletes the groups. The response follows once the request is recorded and, if AWS allows it, applied.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from capacity_adjuster.policy.requested_capacity import (
    RESOURCE_BEGIN,
    CapacityRequest,
    RequestedCapacity,
    cancel_request,
    is_held,
    record_request,
)
from capacity_adjuster.reconcile.adapters import Adapters
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from deeplearning_contract.document import ContractError
from deeplearning_contract.names import FIRST_CANDIDATE

logger = logging.getLogger(__name__)
PAUSE_SECONDS = 2
"""Time between two attempts; a new role is denied for some seconds."""
RESERVE_SECONDS = 60
"""Time of an invocation that is reserved for the response, whose call may take that long with its retries."""
_MOST_REASON = 1000
"""Characters of a reason: a response has at most 4,096 bytes, and JSON may need two for an ASCII character."""
_MOST_DIGITS = 9
_REQUESTED = ("Master", "Workers", "Candidate")
_TYPES = frozenset({"Create", "Update", "Delete"})
_ID = "PhysicalResourceId"


class RequestError(ValueError):
    """Properties of the resource that are not those of the construct; the message names them."""


def is_stack_request(event: Any) -> bool:
    """Return whether an event is from CloudFormation, which waits for a response."""
    return isinstance(event, Mapping) and event.get("RequestType") in _TYPES and "ResponseURL" in event


def answer_stack(
    event: Mapping[str, Any], *, adapters: Adapters, capacity_change: CapacityChange, send: Callable[[str, bytes], None]
) -> str:
    """
    Record CloudFormation's request for capacity, apply it, and send the response; return the outcome for the log.

    Raises RuntimeError if another invocation changes capacity during the deletion of the cluster, and OSError if
    CloudFormation's URL refuses the response: Lambda retries.
    """
    answer = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    answer |= {_ID: event.get(_ID) or f"{RESOURCE_BEGIN}{event['RequestId']}", "Status": "SUCCESS"}
    try:
        outcome = (
            _end(adapters, answer[_ID])
            if event["RequestType"] == "Delete"
            else _ask(event, answer, adapters, capacity_change)
        )
    except (RequestError, BotoCoreError, ClientError) as error:
        # Without a response to this failure the stack would keep waiting.
        outcome = f"could not record the stack's request for capacity: {error}"
        if event["RequestType"] != "Delete":  # Deleted groups need no capacity, with any record.
            reason = outcome.encode("ascii", "backslashreplace").decode()
            answer |= {"Status": "FAILED", "Reason": reason[:_MOST_REASON]}
    send(event["ResponseURL"], json.dumps(answer).encode())
    return outcome


def _ask(
    event: Mapping[str, Any], answer: Mapping[str, Any], adapters: Adapters, capacity_change: CapacityChange
) -> str:
    request = read_request(event, answer[_ID])
    if _is_unchanged(event):
        return "no count has changed"
    _persist(adapters, lambda: _write_next(adapters, lambda requested: record_request(requested, request)))
    try:
        return str(_persist(adapters, lambda: _carry_out(capacity_change)))
    except (BotoCoreError, ClientError, ContractError, TimeoutError) as error:
        # The request is recorded, so the timer continues it.
        logger.warning("could not set the capacity; retrying: %s", error)
        return "the request is recorded"


def read_request(event: Mapping[str, Any], resource: str) -> CapacityRequest:
    """Read CloudFormation's request for a resource, whose properties are texts; RequestError for a malformed count."""
    properties = event.get("ResourceProperties")
    properties = properties if isinstance(properties, Mapping) else {}
    counts = [str(properties.get(name, "")) for name in ("Master", "Workers")]
    if not all(count.isascii() and count.isdigit() and len(count) <= _MOST_DIGITS for count in counts):
        raise RequestError(f"Master and Workers must be counts, got {counts}; deploy the construct's own template")
    return CapacityRequest(
        request_id=str(event["RequestId"]),
        resource=resource,
        master=int(counts[0]),
        workers=int(counts[1]),
        candidate=str(properties.get("Candidate", FIRST_CANDIDATE)),
        is_creation=event["RequestType"] == "Create",
    )


def _is_unchanged(event: Mapping[str, Any]) -> bool:
    # CloudFormation updates the resource for any property, and a user may have scaled by hand since its request.
    old = event.get("OldResourceProperties")
    return isinstance(old, Mapping) and all(
        old.get(name) == event["ResourceProperties"].get(name) for name in _REQUESTED
    )


def _carry_out(capacity_change: CapacityChange) -> str:
    outcome = capacity_change.run()
    return "" if capacity_change.is_under_way() else outcome or "the request was applied before"


def _end(adapters: Adapters, resource: str) -> str:
    try:
        _persist(adapters, lambda: _write_next(adapters, lambda requested: cancel_request(requested, resource)))
    except TimeoutError as error:
        raise RuntimeError("another invocation sets the capacity; the deletion waits for it") from error
    return "the cluster is being deleted; no more capacity is requested"


def _write_next(adapters: Adapters, follow: Callable[[RequestedCapacity | None], RequestedCapacity | None]) -> bool:
    """Write the successor of the current record, unless a live invocation has it; None needs no write."""
    requested = adapters.records.read(RequestedCapacity)
    following = follow(requested)
    if following is None:
        return True
    return not is_held(requested, adapters.clock.now()) and adapters.records.write(following)


def _persist(adapters: Adapters, attempt: Callable[[], Any]) -> Any:
    """Repeat an attempt until it returns a true value; raise its last error, or TimeoutError, when time runs out."""
    while True:
        failure: Exception | None = None
        try:
            if outcome := attempt():
                return outcome
        except (BotoCoreError, ClientError) as error:
            failure = error
        if adapters.clock.remaining() < RESERVE_SECONDS:
            raise failure or TimeoutError("the request could not be completed in this invocation")
        adapters.clock.sleep(PAUSE_SECONDS)
