"""
Wait conditions: presigned URLs that take signals, and conditions that wait for them.

As in S3, the URL is signed for a PUT with an empty content type, and everything else is refused with 403.
"""

import json
import math
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from cdk_rehearsal.embedded_aws.observation import Observations
from cdk_rehearsal.embedded_aws.place import Place

SIGNAL_PREFIX = "/cloudformation-waitcondition-"
_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?")
_LONGEST_SECONDS = 12 * 3600
MAX_SIGNAL_FIELD = 4096
"""Bytes of a signal's Reason, Data or UniqueId; CloudFormation drops a signal with more."""


@dataclass(frozen=True)
class Signal:
    """A signal that a handle has accepted."""

    status: str
    unique_id: str
    reason: str
    data: str


@dataclass(frozen=True)
class Verdict:
    """How a resource in progress ended; an empty reason is a success."""

    reason: str = ""


class ResourceSignals:
    """
    The signals that complete a resource with a creation policy.

    Args:
        policy: The evaluated `CreationPolicy`; the defaults are those of the CloudFormation template reference.
    """

    def __init__(self, policy: Mapping[str, Any]) -> None:
        wanted = policy.get("ResourceSignal", {})
        self._count = int(wanted.get("Count", 1))
        scaling = policy.get("AutoScalingCreationPolicy", {})
        self._percent = int(scaling.get("MinSuccessfulInstancesPercent", 100))
        self._deadline = time.monotonic() + read_duration(str(wanted.get("Timeout", "PT5M")))
        self._lock = threading.Lock()
        self._statuses: dict[str, str] = {}

    def take(self, unique_id: str, status: str) -> None:
        """Take a signal; the first of each id counts."""
        with self._lock:
            self._statuses.setdefault(unique_id, status)

    def settle(self) -> Verdict | None:
        """Return how the wait ended, None while it lasts; what is missing in the end counts as a failure."""
        with self._lock:
            statuses = tuple(self._statuses.values())
        successes, failures = statuses.count("SUCCESS"), statuses.count("FAILURE")
        needed = math.ceil(self._count * self._percent / 100)
        if successes >= needed:
            return Verdict()
        if failures > self._count - needed:
            return self._fail(failures, "FAILURE")
        return self._fail(successes, "SUCCESS") if time.monotonic() >= self._deadline else None

    def _fail(self, number: int, status: str) -> Verdict:
        """The words are those of public issues, such as aws-quickstart/quickstart-linux-bastion#144."""
        return Verdict(
            f"Received {number} {status} signal(s) out of {self._count}. Unable to satisfy {self._percent}% "
            "MinSuccessfulInstancesPercent requirement"
        )


def read_duration(text: str) -> float:
    """
    Return the seconds of a duration such as `PT1H30M10S`.

    Raises:
        ValueError: It is none, or more than the 12 hours that CloudFormation allows.
    """
    match = _DURATION.fullmatch(text)
    seconds = (
        sum(int(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    )
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise ValueError(f"Timeout must be a duration of at most 12 hours, such as PT15M, got {text!r}")
    return seconds


class WaitConditionHandles:
    """
    Makes handles and takes their signals.

    Args:
        observations: Where signals are told.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._lock = threading.Lock()
        self._handles: dict[str, tuple[str, dict[str, Signal]]] = {}

    def create(self, place: Place, stack_arn: str, logical_id: str) -> str:
        """Make a handle and return its presigned URL."""
        key = quote(f"{stack_arn}/{logical_id}", safe="")
        path = f"{SIGNAL_PREFIX}{place.region}/{key}"
        token = secrets.token_hex(32)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        scope = quote(f"AKIAREHEARSALWAITCON/{stamp[:8]}/{place.region}/s3/aws4_request", safe="")
        query = (
            f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date={stamp}&X-Amz-SignedHeaders=host"
            f"&X-Amz-Expires=86399&X-Amz-Credential={scope}&X-Amz-Signature={token}"
        )
        url = f"{place.endpoint}{path}?{query}"
        with self._lock:
            self._handles[f"{path}?{query}"] = (url, {})
        return url

    def signals(self, url: str) -> tuple[Signal, ...]:
        """Return the signals of a handle, oldest first."""
        with self._lock:
            for known, signals in self._handles.values():
                if known == url:
                    return tuple(signals.values())
        return ()

    def has_handle(self, url: str) -> bool:
        """Tell whether a URL is one of the handles'."""
        with self._lock:
            return any(known == url for known, _ in self._handles.values())

    def answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """Answer a request for a handle's URL with HTTP status and text."""
        with self._lock:
            handle = self._handles.get(f"{path}?{query}")
        if handle is None or method != "PUT" or headers.get("content-type", ""):
            why = f"{method} with content type {headers.get('content-type', '')!r}"
            self._observations.tell("refusal", "signal", f"signal refused with 403: {why}")
            return (
                403,
                "<Error><Code>SignatureDoesNotMatch</Code><Message>The URL was not signed for this.</Message></Error>",
            )
        signal = _read_signal(body)
        if isinstance(signal, str):
            # S3 takes the object all the same; CloudFormation ignores it.
            self._observations.tell("refusal", "signal", f"signal ignored: {signal}")
            return 200, ""
        with self._lock:
            is_new = signal.unique_id not in handle[1]
            handle[1].setdefault(signal.unique_id, signal)
        text = f"{signal.status} from {signal.unique_id}" + ("" if is_new else " (a repetition, ignored)")
        self._observations.tell("signal", "signal", text, signal=signal, is_new=is_new)
        return 200, ""


class WaitCondition:
    """
    A condition that waits for the signals of one handle.

    Args:
        handles: Holds the handle.
        url: The handle's URL.
        count: Success signals to wait for.
        timeout: Time until it fails, in seconds.
    """

    def __init__(self, handles: WaitConditionHandles, url: str, *, count: int, timeout: float) -> None:
        self._handles = handles
        self._url = url
        self._count = count
        self._deadline = time.monotonic() + timeout

    def settle(self) -> Verdict | None:
        """Return how the wait ended, None while it lasts."""
        signals = self._handles.signals(self._url)
        for signal in signals:
            if signal.status == "FAILURE":
                return Verdict(
                    f"WaitCondition received failed message: '{signal.reason}' for uniqueId: {signal.unique_id}"
                )
        if len(signals) >= self._count:
            return Verdict()
        if time.monotonic() >= self._deadline:
            return Verdict(f"WaitCondition timed out. Received {len(signals)} conditions when expecting {self._count}")
        return None

    def attribute(self) -> str:
        """Return the `Data` attribute: unique id -> data, as JSON."""
        return json.dumps({signal.unique_id: signal.data for signal in self._handles.signals(self._url)})


def _read_signal(body: bytes) -> Signal | str:
    try:
        document = json.loads(body)
    except ValueError:
        return f"the body is not JSON: {body[:80]!r}"
    if not isinstance(document, dict) or document.get("Status") not in ("SUCCESS", "FAILURE"):
        return "Status is neither SUCCESS nor FAILURE"
    fields = [document.get(name, "") for name in ("UniqueId", "Reason", "Data")]
    if not all(isinstance(text, str) for text in fields) or not fields[0]:
        return "UniqueId, Reason and Data must be strings, UniqueId not empty"
    if any(len(text.encode()) > MAX_SIGNAL_FIELD for text in fields):
        return f"a field is longer than {MAX_SIGNAL_FIELD} bytes"
    return Signal(document["Status"], *fields)
