"""Reads of a request what its operation is called with, as far as rights depend on it."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from cdk_rehearsal.embedded_aws.server.request_signature import SignedRequest


def read_parameters(service: str, request: SignedRequest) -> Mapping[str, Any]:
    """
    Return the parameters of a request.

    Args:
        service: Signing name of the service.
        request: The request: JSON, a form, or S3's path and query.

    Returns:
        The parameters by the API's names; of a form those on the top level, each a text.
    """
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
