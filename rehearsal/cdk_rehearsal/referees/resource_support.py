"""Checks a template against the table of what the rehearsal implements."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomllib

from cdk_rehearsal.errors import UnsupportedError
from cdk_rehearsal.intrinsics import find_functions, find_references, is_implemented
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate, bind, find_values, is_known, show

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


@dataclass(frozen=True)
class TypeSupport:
    """Support of one resource type; the head of the table explains the columns."""

    acts: Sequence[str] = ()
    without_effect: Mapping[str, str] = field(default_factory=dict)
    attributes: Sequence[str] = ()
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    patterns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    required: Mapping[str, str] = field(default_factory=dict)
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
    return {name: TypeSupport(**row) for name, row in document.items()}


def find_row(resource_type: str) -> str:
    """Return the type under which the tables have a resource type: every `Custom::*` is a custom resource."""
    return CUSTOM_RESOURCE if resource_type.startswith("Custom::") else resource_type


def require_support(
    template: Mapping[str, Any], parameters: Mapping[str, str] | None = None, region: str = "us-east-1"
) -> None:
    """Raise UnsupportedError with everything of a template that the rehearsal does not implement, as `find_gaps`."""
    if findings := find_gaps(template, parameters, region):
        raise UnsupportedError(findings)


def find_gaps(
    template: Mapping[str, Any], parameters: Mapping[str, str] | None = None, region: str = "us-east-1"
) -> list[str]:
    """
    Return everything of a template that the rehearsal does not implement, sorted.

    Args:
        template: The template.
        parameters: Values of parameters. Default: those of the template.
        region: Where it is to be deployed, for mappings by region. Default: us-east-1.
    """
    return sorted(set(_find_gaps(template, _Values(bind(template, parameters or {}), region))))


class _Values(ResolvedTemplate):
    """
    Values as far as parameters and mappings decide them; conditions are unknown, so that both branches are looked at.

    A reference to a resource is its type and the attribute, such as `AWS::SQS::Queue.Arn`, with `Ref` for the `Ref`.
    """

    def __init__(self, template: Mapping[str, Any], region: str) -> None:
        self._types = {name: each.get("Type") for name, each in template.get("Resources", {}).items()}
        super().__init__({key: template.get(key, {}) for key in ("Parameters", "Mappings")}, region)

    def ref(self, name: str) -> Any:
        return self.attribute(name, "Ref") if name in self._types else super().ref(name)

    def attribute(self, name: str, attribute: str) -> Any:
        return f"{self._types[name]}.{attribute}" if name in self._types else super().attribute(name, attribute)


def _find_gaps(template: Mapping[str, Any], values: _Values) -> Iterator[str]:
    resources = template.get("Resources", {})
    yield from (f"template section {name}" for name in set(template) - _SECTIONS)
    if len(resources) > _MAX_RESOURCES:
        yield f"{len(resources)} resources; CloudFormation takes at most {_MAX_RESOURCES}"
    functions = find_functions({key: value for key, value in template.items() if key not in ("Metadata", "Rules")})
    yield from (f"function {name}" for name in functions if not is_implemented(name))
    for name, output in template.get("Outputs", {}).items():
        yield from (f"{name}: output key {key}" for key in set(output) - _OUTPUT_KEYS)
    read = json.dumps([resources, template.get("Outputs", {})])
    yield from (f"dynamic reference {{{{resolve:{service}:…}}}}" for service in _DYNAMIC_REFERENCE.findall(read))
    for logical_id, resource in resources.items():
        kind = str(resource.get("Type"))
        support = load_support().get(find_row(kind))
        if support is None:
            yield f"{logical_id}: type {kind}"
            continue
        properties = resource.get("Properties", {})
        for gap in (
            *_find_key_gaps(resource, support),
            *_find_value_gaps(properties, support, values),
            *_find_shape_gaps(properties, support, resources),
        ):
            yield f"{logical_id}: {kind} {gap}"
    yield from _find_reference_gaps(template)


def _find_key_gaps(resource: Mapping[str, Any], support: TypeSupport) -> Iterator[str]:
    """Yield the keys of a resource and the properties that are not in the table."""
    yield from (f"attribute {key}" for key in set(resource) - set(RESOURCE_KEYS))
    if _ALL not in support.acts:
        yield from (f"property {path}" for path in _find_property_gaps(resource.get("Properties", {}), support))
    if policy := resource.get("CreationPolicy"):
        gaps = _find_property_gaps(policy, CREATION_POLICY) if resource["Type"] in SIGNALLED else [""]
        yield from (f"attribute CreationPolicy {path}".rstrip() for path in gaps)


def _find_value_gaps(properties: Mapping[str, Any], support: TypeSupport, values: _Values) -> Iterator[str]:
    """Yield the properties with values that the lab does not implement."""
    for path, allowed in support.values.items():
        for _, part in find_values(properties, path):
            if (value := values.resolve(part)) not in allowed:
                shown = repr(value) if is_known(value) else show(value)
                yield f"property {path} = {shown} (only {', '.join(map(repr, allowed)) or 'without'})"
    for path, rule in support.patterns.items():
        for value in (values.resolve(part) for _, part in find_values(properties, path)):
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            if is_known(value) and not re.search(rule["pattern"], text):
                yield f"property {path} = {value!r} (only {rule['only']})"


def _find_shape_gaps(
    properties: Mapping[str, Any], support: TypeSupport, resources: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the properties that the lab needs, and those that refer to what it does not implement."""
    for paths, reason in support.required.items():
        if all(_lacks(properties, path.split(".")) for path in paths.split("|")):
            yield f"without property {paths.replace('|', ' or ')} ({reason})"
    for path, refused in support.without.items():
        for name in (str(part.get("Ref")) for _, part in find_values(properties, path) if isinstance(part, dict)):
            if any(find_values(resources.get(name, {}).get("Properties", {}), refused)):
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


def _find_property_gaps(value: Any, support: TypeSupport, path: str = "") -> Iterator[str]:
    """Yield the paths below a value, of which the table has deeper ones, that the table lacks."""
    if value == {"Ref": "AWS::NoValue"}:
        return
    if isinstance(value, list) or (isinstance(value, dict) and set(value) == {"Fn::If"}):
        for entry in value if isinstance(value, list) else value["Fn::If"][1:]:
            yield from _find_property_gaps(entry, support, path)
    elif isinstance(value, dict):
        for key, entry in value.items():
            below = f"{path}.{key}".lstrip(".")
            if any(known.startswith(f"{below}.") for known in support.paths):
                yield from _find_property_gaps(entry, support, below)
            elif below not in support.paths:
                yield below
    else:
        yield path


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
        if attribute and support is not None and {attribute, _ALL}.isdisjoint(support.attributes):
            yield f"{name}: {resources[name]['Type']} attribute Fn::GetAtt {attribute}"
