"""Names the AWS operation that a request calls, from botocore's service models."""

import re
from functools import lru_cache
from urllib.parse import parse_qs

import botocore.session
from botocore.model import ServiceModel

from cdk_rehearsal.embedded_aws.server import session_manager

UNKNOWN_OPERATION = "Unknown"

_MODEL_NAMES = {"elasticfilesystem": "efs", "monitoring": "cloudwatch"}
"""Signing name -> botocore's name, where they differ among the services that a cluster calls."""


def name_operation(  # noqa: PLR0917 - a request has these parts
    service: str, method: str, path: str, query: str, target: str, body: bytes
) -> str:
    """Name the operation of a request to a service, by its signing name; `Unknown` when the models do not know it."""
    if service == session_manager.SERVICE:
        return session_manager.name_channel_operation(method, path) or UNKNOWN_OPERATION
    if target:
        return target.rsplit(".", 1)[-1]
    if b"Action=" in body[:4096] or "Action=" in query:
        form = parse_qs(body.decode(errors="replace")) | parse_qs(query)
        if form.get("Action"):
            return form["Action"][0]
    keys = set(parse_qs(query, keep_blank_values=True))
    for candidate_method, pattern, needed, name in _rest_operations(_MODEL_NAMES.get(service, service)):
        if candidate_method == method and needed <= keys and pattern.fullmatch(path):
            return name
    return UNKNOWN_OPERATION


@lru_cache(maxsize=16)
def _rest_operations(service: str) -> tuple[tuple[str, re.Pattern[str], frozenset[str], str], ...]:
    try:
        model = botocore.session.get_session().get_service_model(service)
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
