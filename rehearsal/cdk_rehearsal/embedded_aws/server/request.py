"""
A request as it was sent: its Signature Version 4, and the parameters that rights depend on.

moto accepts any signature. AWS does not, and the node's first download is signed by hand, so this is not left out.
botocore's own signers are the referee.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True)
class Authorization:
    """The parts of an `Authorization` header."""

    access_key_id: str
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str

    @classmethod
    def parse(cls, header: str) -> "Authorization | None":
        """Read the header; None when it is not Signature Version 4."""
        match = _AUTHORIZATION.fullmatch(header.strip())
        if match is None:
            return None
        key, date, region, service, headers, signature = match.groups()
        return cls(key, date, region, service, tuple(headers.split(";")), signature)


@dataclass(frozen=True)
class SignedRequest:
    """A request as it was sent: path and query still percent-encoded, headers by lower-case name."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def is_signature_valid(request: SignedRequest, authorization: Authorization, secret: str) -> bool:
    """
    Verify that a request bears the signature of a secret access key, over the body that was sent.

    Signed headers that botocore never signs, such as `user-agent`, fail the verification.
    """
    declared = request.headers.get("x-amz-content-sha256", "")
    if re.fullmatch(r"[0-9a-f]{64}", declared) and declared != hashlib.sha256(request.body).hexdigest():
        return False
    timestamp = request.headers.get("x-amz-date", "")
    if "host" not in authorization.signed_headers or not timestamp.startswith(authorization.date):
        return False
    signer = (S3SigV4Auth if authorization.service == "s3" else SigV4Auth)(
        Credentials(authorization.access_key_id, secret), authorization.service, authorization.region
    )
    signed = AWSRequest(
        request.method,
        f"http://signed{request.path or '/'}",  # the host that counts is the signed header
        headers={name: request.headers.get(name, "") for name in authorization.signed_headers},
        data=request.body,
        params=parse_qsl(request.query, keep_blank_values=True),
    )
    signed.context["timestamp"] = timestamp
    text = signer.string_to_sign(signed, signer.canonical_request(signed))
    return hmac.compare_digest(signer.signature(text, signed), authorization.signature)


def read_parameters(service: str, request: SignedRequest) -> Mapping[str, Any]:
    """Return the parameters of a request by the API's names; of a form those on the top level, each a text."""
    query = {name: values[0] for name, values in parse_qs(request.query, keep_blank_values=True).items()}
    if service == "s3":
        bucket, _, key = unquote(request.path).lstrip("/").partition("/")
        return {"Bucket": bucket, "Key": key, **query}
    if "x-amz-target" in request.headers or request.body[:1] == b"{":
        return _read_json(request.body)
    form = parse_qs(request.body.decode(errors="replace"), keep_blank_values=True)
    return query | {name: values[0] for name, values in form.items()}


def _read_json(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
