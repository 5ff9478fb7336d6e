"""Custom resources: a function is invoked with a presigned URL, and its answer there ends the request."""

import json
import secrets
import time
import uuid
from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.referees.resource_support import CUSTOM_RESOURCE

_MAX_RESPONSE = 4096
"""Bytes of an answer, as CloudFormation's user guide says."""
_SERVICE_TIMEOUT_SECONDS = 3600.0
"""Default of `ServiceTimeout`, in CloudFormation too."""
_POLL_SECONDS = 0.05


class _Answer:
    """Answer of a function to one request, due within a timeout in seconds."""

    def __init__(self, logical_id: str, timeout: float) -> None:
        self._logical_id = logical_id
        self._deadline = time.monotonic() + timeout
        self._verdict: Outcome | None = None
        self.physical_id = ""
        self.data: dict[str, Any] = {}

    def take(self, body: bytes) -> None:
        """Take the answer; anything else fails the resource, as in CloudFormation."""
        try:
            answer = json.loads(body)
            status, self.physical_id = answer["Status"], str(answer["PhysicalResourceId"])
        except (ValueError, KeyError, TypeError):
            self._verdict = Outcome(f"Invalid response for {self._logical_id}: {body[:200]!r}")
            return
        reason = ""
        if len(body) > _MAX_RESPONSE:
            reason = "Response object is too long."
        elif status != "SUCCESS":
            said = answer.get("Reason", "the function gave no reason")
            reason = f"Received response status [{status}] from custom resource. Message returned: {said}"
        else:
            self.data = answer.get("Data", {})
        self._verdict = Outcome(reason, self.physical_id)

    def settle(self) -> Outcome | None:
        """Return the outcome of the request; None while it lasts."""
        if self._verdict is None and time.monotonic() >= self._deadline:
            return Outcome("CloudFormation did not receive a response from your Custom Resource.")
        return self._verdict

    def wait(self) -> Outcome:
        """Wait for the outcome."""
        while (verdict := self.settle()) is None:
            time.sleep(_POLL_SECONDS)
        return verdict


class _CustomResource:
    """
    A custom resource of any type: its function acts on all properties and returns the attributes.

    Every request but the first has a physical id (CloudFormation user guide, "Custom resource request objects"); one of
    CloudFormation's own stands for that which the function did not give.
    """

    def __init__(self, creation: Creation) -> None:
        self._creation = creation
        self.attributes: dict[str, Any] = {}
        self._given_id = creation.name(64)
        """CloudFormation's own, for a function that answered nothing: each request but the first names the resource."""
        self._latest = self._request("Create", creation.properties)

    def settle(self) -> Outcome | None:
        """Return the outcome of the creation; None while it lasts."""
        verdict = self._latest.settle()
        self.attributes.update(self._latest.data)
        return verdict

    def update(self, properties: Mapping[str, Any], former: Mapping[str, Any]) -> Outcome:
        """Update the resource; the physical id that a new one replaces is not deleted."""
        answer = self._request("Update", properties, OldResourceProperties=_as_texts(dict(former)))
        verdict = answer.wait()
        if not verdict.reason:
            self._latest = answer
            self.attributes.clear()
            self.attributes.update(answer.data)
        return verdict

    def delete(self) -> None:
        """Delete the resource; raise RuntimeError with the reason of a function that fails."""
        if reason := self._request("Delete", self._creation.properties).wait().reason:
            raise RuntimeError(reason)

    def _request(self, request_type: str, properties: Mapping[str, Any], **more: Any) -> _Answer:
        creation, services = self._creation, self._creation.services
        token = str(properties.get("ServiceToken", ""))
        if ":function:" not in token:
            raise ValueError(f"ServiceToken must be the ARN of a function of this stack, got {token!r}")
        answer = _Answer(creation.logical_id, float(properties.get("ServiceTimeout", _SERVICE_TIMEOUT_SECONDS)))
        key = f"{creation.stack_arn}/{secrets.token_hex(8)}"
        if request_type != "Create":
            more["PhysicalResourceId"] = self._latest.physical_id or self._given_id
        event = {
            "RequestType": request_type,
            "ResponseURL": services.presigned.open(services.place, "custom-resource-response", key, answer),
            "StackId": creation.stack_arn,
            "RequestId": str(uuid.uuid4()),
            "ResourceType": creation.resource_type,
            "LogicalResourceId": creation.logical_id,
            "ResourceProperties": _as_texts(dict(properties)),
            **more,
        }
        services.functions.invoke_for_operator(token, event, source="cloudformation")
        return answer


def _create_custom_resource(creation: Creation) -> Created:
    """Create a custom resource; the function can read public image parameters that its properties name."""
    for value in creation.properties.values():
        if isinstance(value, str) and value.startswith("/aws/service/"):
            creation.services.images.seed_parameter(value)
    resource = _CustomResource(creation)
    return Created(
        creation.logical_id,
        resource.attributes,
        settle=resource.settle,
        delete=resource.delete,
        update=resource.update,
    )


def _as_texts(value: Any) -> Any:
    """Return properties as CloudFormation gives them to a function: numbers and truth values as texts."""
    if isinstance(value, dict):
        return {name: _as_texts(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_as_texts(entry) for entry in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


CREATORS: dict[str, Creator] = {CUSTOM_RESOURCE: _create_custom_resource}
