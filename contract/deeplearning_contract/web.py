"""
Requests over HTTP and HTTPS, without urllib's other schemes, and the signal that ends the stack's WaitCondition.

An address often comes from a setting or a response, which must not make a program read a file. The signal goes to the
presigned URL of the condition's handle, since the API's SignalResource has no reason. CloudFormation uses the first
signal of a UniqueId and ignores repetitions.
"""

import json
import urllib.request
from typing import Any, Literal

from deeplearning_contract.reason import MAX_REASON

SIGNAL_TIMEOUT_SECONDS = 30

_HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
)


def open_address(request: urllib.request.Request, timeout_seconds: float) -> Any:
    """Return the response to a request over HTTP or HTTPS, which the caller closes; OSError without success."""
    opener = urllib.request.OpenerDirector()
    for handler in _HANDLERS:
        opener.add_handler(handler())
    return opener.open(request, timeout=timeout_seconds)


def signal_body(cluster: str, status: Literal["SUCCESS", "FAILURE"], reason: str) -> bytes:
    """Return the JSON body of a signal; the cluster's name is its UniqueId."""
    document = {"Status": status, "Reason": reason[:MAX_REASON], "UniqueId": cluster, "Data": reason[:MAX_REASON]}
    return json.dumps(document).encode()


def send_signal(url: str, body: bytes) -> None:
    """
    PUT a signal to the handle's presigned URL, with the empty content type that was signed.

    The response of a custom resource goes to its own URL in the same way. OSError when the URL refuses it.
    """
    request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})  # noqa: S310 - CloudFormation's own URL
    with open_address(request, SIGNAL_TIMEOUT_SECONDS):
        pass
