"""
Custom resources: a function is invoked with a presigned URL, and its answer there ends the resource's creation.

As in S3, the URL is signed for a PUT with an empty content type, and everything else is refused with 403.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from cdk_rehearsal.embedded_aws.cloudformation.wait_condition import Verdict
from cdk_rehearsal.embedded_aws.place import Place

PRESIGNED_PREFIX = "/cloudformation-"
"""Of the paths of both kinds of CloudFormation's presigned URLs."""
RESPONSE_PREFIX = f"{PRESIGNED_PREFIX}custom-resource-response-"
MAX_RESPONSE = 4096
"""Bytes of an answer, as CloudFormation's user guide says."""
SERVICE_TIMEOUT_SECONDS = 3600.0
"""How long CloudFormation waits for an answer when the template says nothing."""


class CustomResource:
    """
    One custom resource that is being created.

    Args:
        logical_id: Its id in the template.
        timeout: Time until its creation fails, in seconds.
    """

    def __init__(self, logical_id: str, timeout: float) -> None:
        self._logical_id = logical_id
        self._deadline = time.monotonic() + timeout
        self.physical_id = ""
        self.data: dict[str, Any] = {}
        self._verdict: Verdict | None = None

    def take(self, body: bytes) -> None:
        """Take the function's answer; what is not one fails the resource, as CloudFormation does."""
        try:
            answer = json.loads(body)
            status, self.physical_id = answer["Status"], str(answer["PhysicalResourceId"])
        except (ValueError, KeyError, TypeError):
            self._verdict = Verdict(f"Invalid response for {self._logical_id}: {body[:200]!r}")
            return
        if len(body) > MAX_RESPONSE:
            self._verdict = Verdict("Response object is too long.")
        elif status != "SUCCESS":
            reason = answer.get("Reason", "the function gave no reason")
            self._verdict = Verdict(
                f"Received response status [{status}] from custom resource. Message returned: {reason}"
            )
        else:
            self.data = answer.get("Data", {})
            self._verdict = Verdict()

    def settle(self) -> Verdict | None:
        """Return how the creation ended, None while it lasts."""
        if self._verdict is None and time.monotonic() >= self._deadline:
            return Verdict("CloudFormation did not receive a response from your Custom Resource.")
        return self._verdict


class CustomResources:
    """Makes the presigned URLs of custom resources, and takes what is put there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, CustomResource] = {}

    def open(self, place: Place, stack_arn: str, resource: CustomResource) -> str:
        """Make the URL at which a resource's function answers."""
        key = quote(f"{stack_arn}/{secrets.token_hex(8)}", safe="")
        target = f"{RESPONSE_PREFIX}{place.region}/{key}?X-Amz-Signature={secrets.token_hex(32)}"
        with self._lock:
            self._waiting[target] = resource
        return f"{place.endpoint}{target}"

    def answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """Answer a request for a URL with HTTP status and text."""
        with self._lock:
            resource = self._waiting.get(f"{path}?{query}")
        if resource is None or method != "PUT" or headers.get("content-type", ""):
            return 403, "<Error><Code>SignatureDoesNotMatch</Code></Error>"
        resource.take(body)
        return 200, ""


SignalAnswer = Callable[[str, str, str, Mapping[str, str], bytes], tuple[int, str]]


def answer_either(signals: SignalAnswer, resources: SignalAnswer) -> SignalAnswer:
    """Return what answers both kinds of CloudFormation's presigned URLs."""

    def answer(method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        chosen = resources if path.startswith(RESPONSE_PREFIX) else signals
        return chosen(method, path, query, headers, body)

    return answer
