"""
A request as it was sent: its Signature Version 4, its parameters, and its operation by botocore's service models.

moto accepts any signature. AWS does not, and the node's first download is signed by hand, so this is not left out.
botocore's own signers are the referee.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote
from xml.sax.saxutils import unescape

import botocore.exceptions
import botocore.loaders
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.model import ServiceModel

REST_JSON = frozenset({"eks", "eks-auth", "lambda"})
"""Services with parameters in the path, and answers in JSON."""
CHANNEL_SERVICE = "ssmmessages"
"""Signing name of the channels of Session Manager, which is no API that botocore knows."""
CHANNEL = re.compile(r"/v1/(control|data)-channel/([A-Za-z0-9.-]{1,128})")
"""Path of a channel: its kind and its name."""
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


_S3_HEADERS = {
    "x-amz-acl": "ACL",
    "x-amz-server-side-encryption": "ServerSideEncryption",
    "x-amz-server-side-encryption-aws-kms-key-id": "SSEKMSKeyId",
    "x-amz-copy-source": "CopySource",
    "x-amz-tagging-directive": "TaggingDirective",
}
"""Headers of uploads and copies by which policies decide, with the API's names."""


def read_parameters(service: str, request: SignedRequest) -> Mapping[str, Any]:
    """Return the parameters of a request by the API's names; of a form those on the top level, each a text."""
    query = {name: values[0] for name, values in parse_qs(request.query, keep_blank_values=True).items()}
    if service == "s3":
        bucket, _, key = unquote(request.path).lstrip("/").partition("/")
        headers = {name: request.headers[header] for header, name in _S3_HEADERS.items() if header in request.headers}
        keys = {"Keys": _read_keys(request.body)} if "delete" in query else {}
        return {"Bucket": bucket, "Key": key, **query, **headers, **keys}
    if service in REST_JSON:
        return {**query, **_read_json(request.body), **_read_path(service, request)}
    if "x-amz-target" in request.headers or request.body[:1] == b"{":
        return _read_json(request.body)
    form = parse_qs(request.body.decode(errors="replace"), keep_blank_values=True)
    return query | {name: values[0] for name, values in form.items()}


def _read_keys(body: bytes) -> list[tuple[str, bool]]:
    """Return the keys of S3's `DeleteObjects`, and whether a version of each is named."""
    objects = re.findall(r"<Object>(.*?)</Object>", body.decode(errors="replace"), re.DOTALL)
    keys = (re.search(r"<Key>(.*?)</Key>", each, re.DOTALL) for each in objects)
    return [(unescape(key[1]), "<VersionId>" in each) for key, each in zip(keys, objects, strict=True) if key]


def _read_json(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _read_path(service: str, request: SignedRequest) -> Mapping[str, str]:
    """Return the parameters in the path of a request, by their names there."""
    operation = name_operation(service, request)
    if operation == UNKNOWN_OPERATION:
        return {}
    uri = str(_load_model(service).operation_model(operation).http["requestUri"]).partition("?")[0]
    parts = zip(uri.split("/"), request.path.split("/"), strict=False)
    return {name.strip("{}"): unquote(value) for name, value in parts if name.startswith("{")}


UNKNOWN_OPERATION = "Unknown"

_MODEL_NAMES = {"elasticfilesystem": "efs", "monitoring": "cloudwatch"}
"""Signing name -> botocore's name, where they differ among the services that a cluster calls."""


_COPIES = {"PutObject": "CopyObject", "UploadPart": "UploadPartCopy"}
"""Uploads of S3 that copy an object, and need a right to their source too; a header alone tells them apart."""


def name_operation(service: str, request: SignedRequest) -> str:
    """Return the operation of a request to a service, by its signing name; `Unknown` when the models lack it."""
    query, body = request.query, request.body
    if service == CHANNEL_SERVICE:
        return _name_channel_operation(request.method, request.path) or UNKNOWN_OPERATION
    if target := request.headers.get("x-amz-target", ""):
        return target.rsplit(".", 1)[-1]
    if b"Action=" in body[:4096] or "Action=" in query:
        form = parse_qs(body.decode(errors="replace")) | parse_qs(query)
        if form.get("Action"):
            return form["Action"][0]
    keys = set(parse_qs(query, keep_blank_values=True))
    for method, pattern, needed, name in _rest_operations(_MODEL_NAMES.get(service, service)):
        if method == request.method and needed <= keys and pattern.fullmatch(request.path):
            return _COPIES.get(name, name) if "x-amz-copy-source" in request.headers else name
    return UNKNOWN_OPERATION


def _name_channel_operation(method: str, path: str) -> str | None:
    """Return the action behind a request to a channel; None for no request."""
    match = CHANNEL.fullmatch(path)
    verb = {"POST": "Create", "GET": "Open"}.get(method)
    return f"{verb}{match[1].capitalize()}Channel" if match and verb else None


@lru_cache(maxsize=16)
def _load_model(service: str) -> ServiceModel:
    # A loader of its own: clients of S3 take the bucket out of the paths in the document of theirs.
    return ServiceModel(botocore.loaders.Loader().load_service_model(service, "service-2"), service)


@lru_cache(maxsize=16)
def _rest_operations(service: str) -> tuple[tuple[str, re.Pattern[str], frozenset[str], str], ...]:
    try:
        model = _load_model(service)
    except botocore.exceptions.UnknownServiceError:
        return ()
    rows = [_rest_operation(model, name) for name in model.operation_names if not _wants(model, name, "header")]
    # The most query keys and then the longest pattern first, so that ListObjectsV2 is not taken for ListObjects.
    return tuple(sorted(rows, key=lambda row: (-len(row[2]), -len(row[1].pattern), row[3])))


def _wants(model: ServiceModel, name: str, location: str) -> set[str]:
    """Return what an operation requires in headers or in the query; copies of S3 are puts that have a header more."""
    shape = model.operation_model(name).input_shape
    members = {} if shape is None else {key: shape.members[key].serialization for key in shape.required_members}
    return {found.get("name", key) for key, found in members.items() if found.get("location") == location}


def _rest_operation(model: ServiceModel, name: str) -> tuple[str, re.Pattern[str], frozenset[str], str]:
    http = model.operation_model(name).http
    path, _, query = str(http.get("requestUri", "/")).partition("?")
    if model.service_name == "s3":
        path = re.sub(r"^/\{Bucket\}", "/{Bucket}", path)
    pattern = re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
    pattern = re.sub(r"\{[^}]*\+\}|\{[^}]*\\\+\}", ".+", pattern)
    pattern = re.sub(r"\{[^}]*\}", "[^/]+", pattern) + "/?"
    needed = frozenset(part.partition("=")[0] for part in query.split("&") if part) | _wants(model, name, "querystring")
    return str(http.get("method", "POST")), re.compile(pattern), needed, name
