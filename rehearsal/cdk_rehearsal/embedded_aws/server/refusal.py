"""How AWS refuses a call, in the protocol of the service."""

import json
from xml.sax.saxutils import escape

from cdk_rehearsal.embedded_aws.access.gatekeeper import Denial
from cdk_rehearsal.embedded_aws.server.request_signature import SignedRequest

_JSON_STATUS, _FORBIDDEN = 400, 403
_FORM_CODES = {"sns": ("AuthorizationError", "KMSAccessDenied")}

Refusal = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


def word_refusal(service: str, request: SignedRequest, denial: Denial) -> Refusal:
    """
    Return the answer to a call that is not allowed.

    Args:
        service: Signing name of the service.
        request: The call.
        denial: Why it is refused.
    """
    if "x-amz-target" in request.headers or request.body[:1] == b"{":
        return _word_json(service, denial)
    if service == "s3":
        text = _word_error("AccessDenied", denial.message) if request.method != "HEAD" else ""
        return _FORBIDDEN, {"Content-Type": "application/xml"}, text.encode()
    code, key_code = _FORM_CODES.get(service, ("AccessDenied", "AccessDenied"))
    inner = _word_error(key_code if denial.is_about_key else code, denial.message, kind="<Type>Sender</Type>")
    body = f"<ErrorResponse>{inner}<RequestId>rehearsal</RequestId></ErrorResponse>"
    return _FORBIDDEN, {"Content-Type": "text/xml"}, body.encode()


def _word_json(service: str, denial: Denial) -> Refusal:
    headers = {"Content-Type": "application/x-amz-json-1.0"}
    if service == "sqs":
        code = "KMS.AccessDeniedException" if denial.is_about_key else "AccessDenied"
        headers["x-amzn-query-error"] = f"{code};Sender"
    kind = "com.amazon.coral.service#AccessDeniedException"
    return _JSON_STATUS, headers, json.dumps({"__type": kind, "message": denial.message}).encode()


def _word_error(code: str, message: str, kind: str = "") -> str:
    return f"<Error>{kind}<Code>{code}</Code><Message>{escape(message)}</Message></Error>"
