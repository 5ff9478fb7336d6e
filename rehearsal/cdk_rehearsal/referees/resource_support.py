"""Checks a template against the table of what the rehearsal implements."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomllib

from cdk_rehearsal.errors import UnsupportedError
from cdk_rehearsal.intrinsics import find_functions, find_references, is_implemented

_SECTIONS = {
    *("AWSTemplateFormatVersion", "Description", "Metadata", "Parameters", "Rules", "Mappings", "Conditions"),
    *("Resources", "Outputs"),
}
RESOURCE_KEYS = {
    "Type": "",
    "Properties": "",
    "DependsOn": "",
    "Condition": "",
    "Metadata": "it is for programs that read templates",
    "DeletionPolicy": "",
    "UpdateReplacePolicy": "a rehearsal creates stacks and never updates one",
    "UpdatePolicy": "a rehearsal creates stacks and never updates one",
    "CreationPolicy": "",
}
"""Keys of a resource, and why those without an effect are honest."""
_OUTPUT_KEYS = frozenset({"Value", "Description", "Condition", "Export"})
_MAX_RESOURCES = 500
CUSTOM_RESOURCE = "AWS::CloudFormation::CustomResource"
_ALL = "*"


@dataclass(frozen=True)
class TypeSupport:
    """Support of one resource type; the head of the table explains the columns."""

    acts: tuple[str, ...]
    without_effect: Mapping[str, str] = field(default_factory=dict)
    attributes: frozenset[str] = frozenset()
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def paths(self) -> frozenset[str]:
        """Every path that is taken."""
        return frozenset(self.acts) | frozenset(self.without_effect)


CREATION_POLICY = TypeSupport(
    acts=("ResourceSignal.Count", "ResourceSignal.Timeout", "AutoScalingCreationPolicy.MinSuccessfulInstancesPercent")
)
SIGNALLED = ("AWS::AutoScaling::AutoScalingGroup", "AWS::EC2::Instance")
"""Types whose creation policy acts."""


@lru_cache(maxsize=1)
def load_support() -> Mapping[str, TypeSupport]:
    """Return the table, by resource type."""
    document = tomllib.loads(Path(__file__).with_name("resource_support.toml").read_text())
    return {
        name: TypeSupport(
            acts=tuple(row.get("acts", ())),
            without_effect=row.get("without_effect", {}),
            attributes=frozenset(row.get("attributes", ())),
            values={path: tuple(values) for path, values in row.get("values", {}).items()},
        )
        for name, row in document.items()
    }


def find_row(resource_type: str) -> str:
    """Return the type under which the tables have a resource type: every `Custom::*` is a custom resource."""
    return CUSTOM_RESOURCE if resource_type.startswith("Custom::") else resource_type


def require_support(template: Mapping[str, Any]) -> None:
    """Raise UnsupportedError with everything of a template that the rehearsal does not implement."""
    if findings := find_gaps(template):
        raise UnsupportedError(findings)


def find_gaps(template: Mapping[str, Any]) -> list[str]:
    """Return everything of a template that the rehearsal does not implement, sorted."""
    return sorted(set(_find_gaps(template)))


def _find_gaps(template: Mapping[str, Any]) -> Iterator[str]:
    resources = template.get("Resources", {})
    yield from (f"template section {name}" for name in set(template) - _SECTIONS)
    if len(resources) > _MAX_RESOURCES:
        yield f"{len(resources)} resources; CloudFormation takes at most {_MAX_RESOURCES}"
    for name in find_functions({key: value for key, value in template.items() if key not in ("Metadata", "Rules")}):
        if not is_implemented(name):
            yield f"function {name}"
    for name, output in template.get("Outputs", {}).items():
        yield from (f"{name}: output key {key}" for key in set(output) - _OUTPUT_KEYS)
    for logical_id, resource in resources.items():
        yield from _find_resource_gaps(logical_id, resource)
    yield from _find_reference_gaps(template)


def _find_resource_gaps(logical_id: str, resource: Mapping[str, Any]) -> Iterator[str]:
    kind = str(resource.get("Type"))
    support = load_support().get(find_row(kind))
    if support is None:
        yield f"{logical_id}: type {kind}"
        return
    yield from (f"{logical_id}: {kind} attribute {key}" for key in set(resource) - set(RESOURCE_KEYS))
    for path in () if _ALL in support.acts else _find_property_gaps(resource.get("Properties", {}), "", support):
        yield f"{logical_id}: {kind} property {path}"
    if policy := resource.get("CreationPolicy"):
        gaps = _find_property_gaps(policy, "", CREATION_POLICY) if kind in SIGNALLED else [""]
        yield from (f"{logical_id}: {kind} attribute CreationPolicy {path}".rstrip() for path in gaps)
    for path, allowed in support.values.items():
        for value in _values_at(resource.get("Properties", {}), path.split(".")):
            if value not in allowed:
                yield f"{logical_id}: {kind} property {path} = {value!r} (only {', '.join(map(repr, allowed))})"


def _find_property_gaps(value: Any, path: str, support: TypeSupport) -> Iterator[str]:
    if path in support.paths and not any(entry.startswith(f"{path}.") for entry in support.paths):
        return
    if isinstance(value, list):
        for entry in value:
            yield from _find_property_gaps(entry, path, support)
    elif isinstance(value, dict):
        if set(value) == {"Fn::If"}:
            for branch in value["Fn::If"][1:]:
                yield from _find_property_gaps(branch, path, support)
            return
        if set(value) == {"Ref"} and value["Ref"] == "AWS::NoValue":
            return
        for key, entry in value.items():
            below = f"{path}.{key}" if path else key
            if below in support.paths or any(known.startswith(f"{below}.") for known in support.paths):
                yield from _find_property_gaps(entry, below, support)
            else:
                yield below
    else:
        yield path


def _values_at(value: Any, path: list[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for entry in value:
            yield from _values_at(entry, path)
    elif isinstance(value, dict) and set(value) == {"Fn::If"}:
        for branch in value["Fn::If"][1:]:
            yield from _values_at(branch, path)
    elif not path:
        if value != {"Ref": "AWS::NoValue"}:
            yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _values_at(value[path[0]], path[1:])


def _find_reference_gaps(template: Mapping[str, Any]) -> Iterator[str]:
    resources = template.get("Resources", {})
    readable = {name: template.get(name, {}) for name in ("Resources", "Outputs", "Conditions")}
    for name, attribute in find_references(readable):
        if name.startswith("AWS::") or (not attribute and name in template.get("Parameters", {})):
            continue
        if name not in resources:
            yield f"reference to {name}, which the template does not define"
            continue
        support = load_support().get(find_row(str(resources[name].get("Type"))))
        if attribute and support is not None and support.attributes.isdisjoint({attribute, _ALL}):
            yield f"{name}: {resources[name]['Type']} attribute Fn::GetAtt {attribute}"
