"""Requests of the API: what a path is about, and what its sender wants to do there."""

import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from cdk_rehearsal.kubernetes.stand_in.api.rights import Attempt
from cdk_rehearsal.kubernetes.stand_in.api.rules import check_choice, forbid
from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError, report_invalid, report_unknown_path
from cdk_rehearsal.kubernetes.stand_in.base.resources import NAMESPACES, RESOURCES, Resource

_PATHS = {(resource.group, resource.version, resource.plural): resource for resource in RESOURCES}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_WRITES = {"POST": "Create", "PUT": "Update", "PATCH": "Patch", "DELETE": "Delete"}
_OPTIONS: Mapping[str, type] = {"propagationPolicy": str, "gracePeriodSeconds": int, "preconditions": dict}
_SCOPES = 2
"""Parts of a path that name a namespace."""


@dataclass(frozen=True)
class Target:
    """
    Objects that a request is about.

    Attributes:
        resource: Kind of objects.
        namespace: Namespace; empty for all, or for objects of the whole cluster.
        name: Name of an object; empty for several.
        part: Subresource; empty for the object.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    part: str = ""

    def name_attempt(self, method: str, query: Mapping[str, str]) -> Attempt:
        """Return what a request of a method attempts."""
        if method == "GET":
            verb = "get" if self.name else "watch" if is_true(query.get("watch")) else "list"
        elif method == "DELETE":
            verb = "delete" if self.name else "deletecollection"
        else:
            verb = _VERBS[method]
        part = f"/{self.part}" if self.part else ""
        namespace = self.name if self.resource is NAMESPACES else self.namespace
        return Attempt(verb, self.resource.group, f"{self.resource.plural}{part}", namespace, self.name)


def parse_path(path: str) -> Target:
    """Return what a path is about; ApiError for one that the API does not have."""
    parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api":
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) > 1:
        group, rest = parts[1], parts[2:]
    else:
        raise report_unknown_path()
    version, *rest = rest or [""]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > _SCOPES and (group or rest[_SCOPES] not in ("status", "finalize")):
        namespace, rest = rest[1], rest[_SCOPES:]
    plural, name, part, *more = [*rest, "", "", ""][: max(3, len(rest))]
    resource = _PATHS.get((group, version, plural))
    if resource is None or more or (namespace and not resource.is_namespaced):
        raise report_unknown_path()
    return Target(resource, namespace, name, part)


def read_body(body: bytes, kind: str) -> Any:
    """
    Return the document of a body, as JSON or as YAML; empty for no body.

    Args:
        body: The body.
        kind: Its content type.

    Raises:
        ApiError: The body is neither; clients that prefer another form send it again as JSON.
    """
    if kind.endswith("protobuf"):
        words = "the body of the request was in an unknown format - accepted media types include: application/json, "
        raise ApiError(415, "UnsupportedMediaType", f"{words}application/yaml")
    if not body.strip():
        return {}
    try:
        return json.loads(body) if body.lstrip()[:1] in b"{[" else yaml.safe_load(body)
    except (ValueError, yaml.YAMLError) as error:
        words = f"the object provided is unrecognized (must be of type Status): {error}"
        raise ApiError(400, "BadRequest", words) from error


def read_options(query: Mapping[str, str], body: Any) -> dict[str, Any]:
    """Return the options of a deletion, from its query and its body."""
    options: dict[str, Any] = dict(body) if isinstance(body, dict) else {}
    for name, kind in _OPTIONS.items():
        if not isinstance(options.get(name, kind()), kind):
            raise ApiError(
                400, "BadRequest", f"DeleteOptions cannot be handled: {name} must be of type {kind.__name__}"
            )
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    if "gracePeriodSeconds" in query:
        options["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
    return options


def check_parameters(query: Mapping[str, str], method: str, kind: str) -> None:
    """
    Require that the parameters of a request are those that its method has.

    Args:
        query: The parameters.
        method: HTTP method.
        kind: Content type.

    Raises:
        ApiError: A number is none, or a choice is not supported.
    """
    for name in ("timeoutSeconds", "limit", "resourceVersion", "gracePeriodSeconds"):
        text = query.get(name, "")
        digits = text.removeprefix("-") if name != "resourceVersion" else text
        if text and not (digits.isascii() and digits.isdecimal()):
            raise ApiError(400, "BadRequest", f'{name}: Invalid value: "{text}": strconv.ParseInt: invalid syntax')
    if method not in _WRITES:
        return
    findings: list[str] = []
    if "fieldValidation" in query and method != "DELETE":
        findings += check_choice("fieldValidation", query["fieldValidation"], ("Ignore", "Strict", "Warn"))
    if query.get("dryRun"):
        findings += check_choice("dryRun", query["dryRun"], ("All",))
    if query.get("propagationPolicy") and method == "DELETE":
        findings += check_choice(
            "propagationPolicy", query["propagationPolicy"], ("Background", "Foreground", "Orphan")
        )
    if "force" in query and method == "PATCH" and not kind.startswith("application/apply-patch"):
        findings.append(forbid("force", "may not be specified for non-apply patch"))
    if findings:
        options = Resource("meta.k8s.io", "", f"{_WRITES[method]}Options")
        raise report_invalid(options, "", *findings)


def is_true(text: str | None) -> bool:
    """Return whether a parameter says yes."""
    return text in ("true", "1", "")
