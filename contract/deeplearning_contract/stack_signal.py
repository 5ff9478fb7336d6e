"""
Signal that ends the stack's WaitCondition, through the presigned URL of its handle.

The API's SignalResource has no reason, so the URL is used. CloudFormation uses the first
signal of a UniqueId and ignores repetitions.
"""

import json
import urllib.request
from typing import Literal

from deeplearning_contract.reason import MAX_REASON
from deeplearning_contract.web import open_address

SIGNAL_TIMEOUT_SECONDS = 30


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
