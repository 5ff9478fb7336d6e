"""
Verifies Signature Version 4 of a request.

moto accepts any signature. AWS does not, and the node's first download is signed by hand, so this is not left out.
The rules are those of the AWS General Reference, "Create a signed AWS API request".
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


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
        return cls(
            match["key"],
            match["date"],
            match["region"],
            match["service"],
            tuple(match["headers"].split(";")),
            match["signature"],
        )


@dataclass(frozen=True)
class SignedRequest:
    """
    What a signature covers.

    Attributes:
        method: HTTP method.
        path: Path as it was sent, still percent-encoded.
        query: Query string as it was sent.
        headers: Headers by lower-case name.
        body: The body.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def is_signature_valid(request: SignedRequest, authorization: Authorization, secret: str) -> bool:
    """Tell whether a request bears the signature of a secret access key, over the body that was sent."""
    declared = request.headers.get("x-amz-content-sha256", "")
    actual = hashlib.sha256(request.body).hexdigest()
    if re.fullmatch(r"[0-9a-f]{64}", declared) and declared != actual:
        return False
    if "host" not in authorization.signed_headers:
        return False
    scope = f"{authorization.date}/{authorization.region}/{authorization.service}/aws4_request"
    canonical = _canonical_request(request, authorization, declared or actual)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{request.headers.get('x-amz-date', '')}\n{scope}\n{digest}"
    key = f"AWS4{secret}".encode()
    for part in (authorization.date, authorization.region, authorization.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, authorization.signature)


def _canonical_request(request: SignedRequest, authorization: Authorization, payload: str) -> str:
    path = request.path or "/"
    if authorization.service != "s3":
        path = quote(path, safe="/-_.~")  # every service but S3 encodes the path twice
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(request.query, keep_blank_values=True)
    )
    headers = "".join(
        f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in authorization.signed_headers
    )
    query = "&".join(f"{name}={value}" for name, value in pairs)
    return "\n".join((request.method, path, query, headers, ";".join(authorization.signed_headers), payload))
