"""Self-description of the API: groups, resources, version, and the parameters that `kubectl apply` looks for."""

from collections.abc import Mapping, Sequence
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.resources import PODS, RESOURCES, Resource

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def describe(path: str, version: str) -> Mapping[str, Any] | None:
    """
    Return the document of a path; None for one that has none.

    Args:
        path: The path.
        version: Minor version of Kubernetes.
    """
    major, minor = version.split(".")
    urls = {_get_root(each)[1:]: {"serverRelativeURL": f"/openapi/v3{_get_root(each)}"} for each in RESOURCES}
    git = {"gitVersion": f"v{version}.0+stand-in", "platform": "linux/amd64"}
    fixed: Mapping[str, Mapping[str, Any]] = {
        "/version": {"major": major, "minor": minor, **git},
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [*map(_describe_group, _list_groups())]},
        "/openapi/v3": {"paths": urls},
    }
    if path in fixed:
        return fixed[path]
    for resource in RESOURCES:
        if path == _get_root(resource):
            return _list_resources(resource.api_version)
        if path == f"/openapi/v3{_get_root(resource)}":
            return _describe_parameters(resource.api_version)
        if resource.group and path == f"/apis/{resource.group}":
            return {"kind": "APIGroup", "apiVersion": "v1", **_describe_group(resource)}
    return None


def _get_root(resource: Resource) -> str:
    return f"/apis/{resource.api_version}" if resource.group else "/api/v1"


def _list_groups() -> Sequence[Resource]:
    return [*{resource.group: resource for resource in RESOURCES if resource.group}.values()]


def _describe_group(resource: Resource) -> dict[str, Any]:
    version = {"groupVersion": resource.api_version, "version": resource.version}
    return {"name": resource.group, "versions": [version], "preferredVersion": version}


def _list_resources(api_version: str) -> Mapping[str, Any]:
    found = []
    for resource in RESOURCES:
        if resource.api_version != api_version:
            continue
        names = {"singularName": resource.kind.lower(), "shortNames": [*resource.short_names]}
        entry = {"namespaced": resource.is_namespaced, "kind": resource.kind}
        found.append({"name": resource.plural, **names, **entry, "verbs": [*_VERBS]})
        if resource.has_status:
            found.append(
                {"name": f"{resource.plural}/status", "singularName": "", **entry, "verbs": ["get", "patch", "update"]}
            )
        if resource is PODS:
            eviction = {"group": "policy", "version": "v1", "kind": "Eviction", "namespaced": True, "verbs": ["create"]}
            found.append({"name": "pods/log", "singularName": "", **entry, "verbs": ["get"]})
            found.append({"name": "pods/eviction", "singularName": "", **eviction})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": found}


def _describe_parameters(api_version: str) -> Mapping[str, Any]:
    parameters = [{"name": name, "in": "query"} for name in ("dryRun", "fieldManager", "fieldValidation", "force")]
    paths = {}
    for resource in RESOURCES:
        if resource.api_version == api_version:
            kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
            space = "namespaces/{namespace}/" if resource.is_namespaced else ""
            patch = {"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": kind}
            paths[f"{_get_root(resource)}/{space}{resource.plural}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": api_version}, "paths": paths}
