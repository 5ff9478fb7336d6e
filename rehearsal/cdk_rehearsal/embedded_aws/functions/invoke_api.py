"""Lambda's API `Invoke`: runs a function for a caller that waits, or accepts an event (API reference, "Invoke")."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.base.request import SignedRequest, read_parameters
from cdk_rehearsal.embedded_aws.functions.runner import FunctionRunner

Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""
_MOST_BYTES = 6_291_556
"""Of an answer; the words are those of the error."""
_LOG_BYTES = 4096
_LATEST = "$LATEST"


class InvokeApi:
    """Answers `Invoke`; whether the caller may is decided before."""

    def __init__(self, functions: FunctionRunner) -> None:
        self._functions = functions

    def answer(self, request: SignedRequest) -> Answer:
        """Answer a request."""
        parameters = read_parameters("lambda", request)
        arn, qualifier = self._find(str(parameters["FunctionName"]), str(parameters.get("Qualifier", _LATEST)))
        if not arn or qualifier != _LATEST:
            message = f"Function not found: {arn or parameters['FunctionName']}:{qualifier}"
            return _refuse(404, "ResourceNotFoundException", message)
        try:
            event = json.loads(request.body or b"{}")
        except ValueError as error:
            text = f"Could not parse request body into json: {error}"
            return _refuse(400, "InvalidRequestContentException", text)
        kind = request.headers.get("x-amz-invocation-type", "RequestResponse")
        if kind == "DryRun":
            return 204, {}, b""
        if kind == "Event":
            self._functions.invoke_for_operator(arn, event, source="invoke")
            return 202, {}, b""
        return self._wait(arn, event, wants_log=request.headers.get("x-amz-log-type") == "Tail")

    def _find(self, name: str, qualifier: str) -> tuple[str, str]:
        """Return ARN and qualifier of a function by its name or ARN, whole or in part; no ARN where there is none."""
        parts = name.split(":")
        if len(parts) in (2, 8) and "function" not in parts[-2:-1]:
            name, qualifier = parts[-2], parts[-1]
        return self._functions.find_arn(name.rpartition(":")[2]), qualifier

    def _wait(self, arn: str, event: Any, *, wants_log: bool) -> Answer:
        outcome = self._functions.invoke(arn, event)
        headers = {"Content-Type": "application/json", "X-Amz-Executed-Version": _LATEST}
        body = json.dumps(outcome.failure or outcome.result).encode()
        if len(body) > _MOST_BYTES:
            said = f"Response payload size exceeded maximum allowed payload size ({_MOST_BYTES} bytes)."
            body = json.dumps({"errorMessage": said, "errorType": "Function.ResponseSizeTooLarge"}).encode()
            headers["X-Amz-Function-Error"] = "Unhandled"
        if outcome.error:
            headers["X-Amz-Function-Error"] = "Unhandled"
        if wants_log:
            headers["X-Amz-Log-Result"] = base64.b64encode(outcome.log.encode()[-_LOG_BYTES:]).decode()
        return 200, headers, body


def _refuse(status: int, code: str, message: str) -> Answer:
    body = json.dumps({"Type": "User", "Message": message}).encode()
    return status, {"Content-Type": "application/json", "x-amzn-ErrorType": code}, body
