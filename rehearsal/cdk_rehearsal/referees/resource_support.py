"""Checks a template against the table of what the rehearsal implements."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomllib

from cdk_rehearsal.errors import AssemblyError, UnsupportedError
from cdk_rehearsal.intrinsics import evaluate, find_functions, find_references, is_implemented

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
_DYNAMIC_REFERENCE = re.compile(r"\{\{resolve:((?!ssm:)[a-z-]+):")
"""A dynamic reference to another service than Systems Manager's plain parameters."""
_UNKNOWN = object()
"""Value that the template alone does not decide."""


@dataclass(frozen=True)
class TypeSupport:
    """Support of one resource type; the head of the table explains the columns."""

    acts: tuple[str, ...]
    without_effect: Mapping[str, str] = field(default_factory=dict)
    attributes: frozenset[str] = frozenset()
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    patterns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    required: Mapping[str, str] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)

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
            **{name: row.get(name, {}) for name in ("patterns", "required", "most", "without")},
        )
        for name, row in document.items()
    }


def find_row(resource_type: str) -> str:
    """Return the type under which the tables have a resource type: every `Custom::*` is a custom resource."""
    return CUSTOM_RESOURCE if resource_type.startswith("Custom::") else resource_type


def require_support(template: Mapping[str, Any], parameters: Mapping[str, str] | None = None) -> None:
    """Raise UnsupportedError with everything of a template that the rehearsal does not implement."""
    if findings := find_gaps(template, parameters):
        raise UnsupportedError(findings)


def find_gaps(template: Mapping[str, Any], parameters: Mapping[str, str] | None = None) -> list[str]:
    """
    Return everything of a template that the rehearsal does not implement, sorted.

    Args:
        template: The template.
        parameters: Values of parameters. Default: those of the template.
    """
    return sorted(set(_find_gaps(template, _TemplateScope(template, parameters or {}))))


class _TemplateScope:
    """
    Values as far as a template decides them; LookupError for others.

    A reference to a resource is its type and the attribute, such as `AWS::SQS::Queue.Arn`, with `Ref` for the `Ref`.
    """

    def __init__(self, template: Mapping[str, Any], parameters: Mapping[str, str]) -> None:
        self._template, self._parameters = template, parameters

    def value(self, part: Any) -> Any:
        """Return the value of a part of the template, `_UNKNOWN` where it does not decide it."""
        try:
            return evaluate(part, self)
        except (LookupError, AssemblyError, TypeError, ValueError):
            return _UNKNOWN

    def ref(self, name: str) -> Any:
        if name.startswith("AWS::"):
            return name.removeprefix("AWS::")
        if name in self._template.get("Resources", {}):
            return self.attribute(name, "Ref")
        declaration = self._template["Parameters"][name]
        if str(declaration["Type"]).startswith("AWS::SSM::Parameter::Value"):
            raise LookupError(name)
        return self._parameters[name] if name in self._parameters else declaration["Default"]

    def attribute(self, name: str, attribute: str) -> Any:
        return f"{self._template['Resources'][name]['Type']}.{attribute}"

    def condition(self, name: str) -> bool:
        raise LookupError(name)

    def mapping(self, name: str, first: str, second: str) -> Any:
        return self._template["Mappings"][name][first][second]

    def zones(self, region: str) -> list[str]:
        raise LookupError(region)

    def dynamic(self, reference: str) -> str:
        raise LookupError(reference)

    def read_other_stack(self, function: str, argument: Any) -> str:
        raise LookupError(function, argument)


def _find_gaps(template: Mapping[str, Any], scope: _TemplateScope) -> Iterator[str]:
    resources = template.get("Resources", {})
    yield from (f"template section {name}" for name in set(template) - _SECTIONS)
    if len(resources) > _MAX_RESOURCES:
        yield f"{len(resources)} resources; CloudFormation takes at most {_MAX_RESOURCES}"
    for name in find_functions({key: value for key, value in template.items() if key not in ("Metadata", "Rules")}):
        if not is_implemented(name):
            yield f"function {name}"
    for name, output in template.get("Outputs", {}).items():
        yield from (f"{name}: output key {key}" for key in set(output) - _OUTPUT_KEYS)
    read = json.dumps([resources, template.get("Outputs", {})])
    yield from (f"dynamic reference {{{{resolve:{service}:…}}}}" for service in _DYNAMIC_REFERENCE.findall(read))
    for logical_id, resource in resources.items():
        yield from _find_resource_gaps(logical_id, resource)
        support = load_support().get(find_row(str(resource.get("Type"))), TypeSupport(acts=()))
        for gap in _find_value_gaps(resource.get("Properties", {}), support, scope, resources):
            yield f"{logical_id}: {resource['Type']} {gap}"
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


def _find_value_gaps(
    properties: Mapping[str, Any], support: TypeSupport, scope: _TemplateScope, resources: Mapping[str, Any]
) -> Iterator[str]:
    for path, allowed in support.values.items():
        for part in _values_at(properties, path.split(".")):
            value = scope.value(part)
            if value not in allowed:
                shown = part if value is _UNKNOWN else value
                yield f"property {path} = {shown!r} (only {', '.join(map(repr, allowed))})"
    for path, rule in support.patterns.items():
        for value in map(scope.value, _values_at(properties, path.split("."))):
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            if value is not _UNKNOWN and not re.search(rule["pattern"], text):
                yield f"property {path} = {value!r} (only {rule['only']})"
    for paths, reason in support.required.items():
        if all(_lacks(properties, path.split(".")) for path in paths.split("|")):
            yield f"without property {paths.replace('|', ' or ')} ({reason})"
    yield from _find_shape_gaps(properties, support, resources)


def _find_shape_gaps(
    properties: Mapping[str, Any], support: TypeSupport, resources: Mapping[str, Any]
) -> Iterator[str]:
    for path, most in support.most.items():
        *parents, given = path.split(".")
        for owner in _values_at(properties, parents):
            if isinstance(owner.get(given), list) and len(owner[given]) > most:
                yield f"property {path} with {len(owner[given])} entries (at most {most})"
    for path, refused in support.without.items():
        for part in _values_at(properties, path.split(".")):
            name = str(part.get("Ref")) if isinstance(part, dict) else ""
            other = resources.get(name, {}).get("Properties", {})
            if any(True for _ in _values_at(other, refused.split("."))):
                yield f"property {path} = {name}, whose {refused} is given (only without)"


def _lacks(value: Any, path: list[str]) -> bool:
    """Return whether a property is missing, in one branch of a condition or in one entry of a list."""
    if value == {"Ref": "AWS::NoValue"}:
        return True
    if isinstance(value, dict) and set(value) == {"Fn::If"}:
        return any(_lacks(branch, path) for branch in value["Fn::If"][1:])
    if not path:
        return False
    if isinstance(value, list):
        return not value or any(_lacks(entry, path) for entry in value)
    return not isinstance(value, dict) or path[0] not in value or _lacks(value[path[0]], path[1:])


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
