"""CloudFormation's presigned URLs, the signals that are put there, and the resources that wait for them."""

import json
import math
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.place import Place

PRESIGNED_PREFIX = "/cloudformation-"
"""Start of the paths of all presigned URLs."""
_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?")
_LONGEST_SECONDS = 12 * 3600
_MAX_SIGNAL_FIELD = 4096
"""Bytes of a signal's Reason, Data or UniqueId; CloudFormation drops a signal with more."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a resource in progress: an empty reason is a success; `physical_id` replaces the resource's."""

    reason: str = ""
    physical_id: str = ""


class Receiver(Protocol):
    """Receiver of what is put at a presigned URL."""

    def take(self, body: bytes) -> None:
        """Take a body."""


class PresignedUrls:
    """
    Presigned URLs with their receivers.

    As in S3, a URL is signed for a PUT with an empty content type, and everything else is refused with 403.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._receivers: dict[str, Receiver] = {}

    def open(self, place: Place, bucket: str, key: str, receiver: Receiver) -> str:
        """Make a URL of one of CloudFormation's buckets, such as `waitcondition`."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        scope = quote(f"AKIAREHEARSALWAITCON/{stamp[:8]}/{place.region}/s3/aws4_request", safe="")
        target = (
            f"{PRESIGNED_PREFIX}{bucket}-{place.region}/{quote(key, safe='')}"
            f"?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date={stamp}&X-Amz-SignedHeaders=host"
            f"&X-Amz-Expires=86399&X-Amz-Credential={scope}&X-Amz-Signature={secrets.token_hex(32)}"
        )
        self._receivers[target] = receiver
        return f"{place.endpoint}{target}"

    def find(self, url: str) -> Receiver | None:
        """Return the receiver of a URL."""
        parts = urlsplit(url)
        return self._receivers.get(f"{parts.path}?{parts.query}")

    def answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """Return HTTP status and text for a request."""
        receiver = self._receivers.get(f"{path}?{query}")
        kind = headers.get("content-type", "")
        if receiver is None or method != "PUT" or kind:
            why = f"{method} with content type {kind!r}"
            self._observations.report("refusal", "signal", f"signal refused with 403: {why}")
            message = "<Message>The URL was not signed for this.</Message>"
            return 403, f"<Error><Code>SignatureDoesNotMatch</Code>{message}</Error>"
        receiver.take(body)
        return 200, ""


@dataclass(frozen=True)
class Signal:
    """Signal that a handle has accepted."""

    status: str
    unique_id: str
    reason: str
    data: str


class SignalHandle:
    """Handle of a wait condition: keeps the first signal of each unique id."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._lock = threading.Lock()
        self._signals: dict[str, Signal] = {}

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals, oldest first."""
        with self._lock:
            return tuple(self._signals.values())

    def take(self, body: bytes) -> None:
        """Take a signal; S3 stores a body that is none all the same, and CloudFormation ignores it."""
        signal = _read_signal(body)
        if isinstance(signal, str):
            self._observations.report("refusal", "signal", f"signal ignored: {signal}")
            return
        with self._lock:
            is_new = signal.unique_id not in self._signals
            self._signals.setdefault(signal.unique_id, signal)
        text = f"{signal.status} from {signal.unique_id}" + ("" if is_new else " (a repetition, ignored)")
        self._observations.report("signal", "signal", text, signal=signal, is_new=is_new)


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
    if any(len(text.encode()) > _MAX_SIGNAL_FIELD for text in fields):
        return f"a field is longer than {_MAX_SIGNAL_FIELD} bytes"
    return Signal(document["Status"], *fields)


class WaitCondition:
    """Condition that waits for `count` success signals of a handle, up to a timeout in seconds."""

    def __init__(self, handle: SignalHandle, *, count: int, timeout: float) -> None:
        self._handle = handle
        self._count = count
        self._deadline = time.monotonic() + timeout

    def settle(self) -> Outcome | None:
        """Return the outcome; None while the wait lasts."""
        signals = self._handle.signals
        for signal in signals:
            if signal.status == "FAILURE":
                return Outcome(
                    f"WaitCondition received failed message: '{signal.reason}' for uniqueId: {signal.unique_id}"
                )
        if len(signals) >= self._count:
            return Outcome()
        if time.monotonic() >= self._deadline:
            return Outcome(f"WaitCondition timed out. Received {len(signals)} conditions when expecting {self._count}")
        return None

    def attribute(self) -> str:
        """Return the `Data` attribute: unique id -> data, as JSON."""
        return json.dumps({signal.unique_id: signal.data for signal in self._handle.signals})


class ResourceSignals:
    """
    Signals that complete a resource, by its `CreationPolicy` (defaults: CloudFormation template reference).

    A group takes the percentage of its policy, in the words of public issues such as
    aws-quickstart/quickstart-linux-bastion#144. Anything else, such as an instance, fails by one failure, in those of
    widdix/aws-ec2-ssh#137 and, for a time-out, of aws/aws-cli#7133.
    """

    def __init__(self, policy: Mapping[str, Any], *, is_group: bool) -> None:
        wanted = policy.get("ResourceSignal", {})
        self._count = int(wanted.get("Count", 1))
        self._is_group = is_group
        scaling = policy.get("AutoScalingCreationPolicy", {})
        self._percent = int(scaling.get("MinSuccessfulInstancesPercent", 100))
        self._deadline = time.monotonic() + read_duration(str(wanted.get("Timeout", "PT5M")))
        self._lock = threading.Lock()
        self._statuses: dict[str, str] = {}

    def take(self, unique_id: str, status: str) -> None:
        """Take a signal; the first of each id counts."""
        with self._lock:
            self._statuses.setdefault(unique_id, status)

    def settle(self) -> Outcome | None:
        """Return how the wait ended, None while it lasts; what is missing in the end counts as a failure."""
        with self._lock:
            statuses = dict(self._statuses)
        failed = [name for name, status in statuses.items() if status == "FAILURE"]
        successes = len(statuses) - len(failed)
        needed = math.ceil(self._count * self._percent / 100)
        if successes >= needed and (self._is_group or not failed):
            return Outcome()
        is_late = time.monotonic() >= self._deadline
        if not self._is_group:
            late = f"Failed to receive {needed - successes} resource signal(s) within the specified duration"
            reason = f"Received FAILURE signal with UniqueId {failed[0]}" if failed else late
            return Outcome(reason) if failed or is_late else None
        if len(failed) > self._count - needed:
            return self._fail(len(failed), "FAILURE")
        return self._fail(successes, "SUCCESS") if is_late else None

    def _fail(self, number: int, status: str) -> Outcome:
        return Outcome(
            f"Received {number} {status} signal(s) out of {self._count}. Unable to satisfy {self._percent}% "
            "MinSuccessfulInstancesPercent requirement"
        )


def read_duration(text: str) -> float:
    """Return the seconds of a duration such as `PT1H30M10S`; raise ValueError for none, or more than 12 hours."""
    match = _DURATION.fullmatch(text)
    seconds = (
        sum(int(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    )
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise ValueError(f"Timeout must be a duration of at most 12 hours, such as PT15M, got {text!r}")
    return seconds
