"""Evaluates the intrinsic functions of CloudFormation."""

import base64
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from cdk_rehearsal.errors import AssemblyError

NO_VALUE = object()
"""Value of `Ref: AWS::NoValue`, which leaves the property out."""
_SUBSTITUTION = re.compile(r"\$\{(!?)([^}]*)\}")
_DYNAMIC_REFERENCE = re.compile(r"\{\{resolve:([^}]*)\}\}")


class Scope(Protocol):
    """Values of the names of a template."""

    def ref(self, name: str) -> Any:
        """Return the value of a parameter, pseudo parameter or resource."""

    def attribute(self, name: str, attribute: str) -> Any:
        """Return an attribute of a resource."""

    def condition(self, name: str) -> bool:
        """Return the value of a condition."""

    def mapping(self, name: str, first: str, second: str) -> Any:
        """Return a value of a mapping."""

    def zones(self, region: str) -> list[str]:
        """Return the availability zones of a region; an empty name is the stack's."""

    def dynamic(self, reference: str) -> str:
        """Return the value of a dynamic reference, without its braces and `resolve:`."""

    def read_other_stack(self, function: str, argument: Any) -> str:
        """Return a value of another stack: of `Fn::ImportValue`, or of `Fn::GetStackOutput`."""


def evaluate(value: Any, scope: Scope) -> Any:
    """Evaluate a part of a template; raise AssemblyError for a function that the rehearsal does not implement."""
    if isinstance(value, str):
        return _DYNAMIC_REFERENCE.sub(lambda match: scope.dynamic(match[1]), value)
    if isinstance(value, list):
        return [item for item in (evaluate(entry, scope) for entry in value) if item is not NO_VALUE]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        name, argument = next(iter(value.items()))
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](argument, scope)
        if name.startswith("Fn::"):
            raise AssemblyError(f"the rehearsal does not implement {name}")
    evaluated = {key: evaluate(entry, scope) for key, entry in value.items()}
    return {key: entry for key, entry in evaluated.items() if entry is not NO_VALUE}


def find_functions(value: Any) -> set[str]:
    """Return the names of the intrinsic functions in a part of a template."""
    if isinstance(value, list):
        return {name for entry in value for name in find_functions(entry)}
    if not isinstance(value, dict):
        return set()
    own = {name for name in value if len(value) == 1 and (name.startswith("Fn::") or name in ("Ref", "Condition"))}
    return own | {name for entry in value.values() for name in find_functions(entry)}


def is_implemented(function: str) -> bool:
    """Return whether an intrinsic function is implemented."""
    return function in _FUNCTIONS


def find_references(value: Any) -> set[tuple[str, str]]:
    """Return what a part of a template refers to: name and attribute, the attribute empty for a `Ref`."""
    if isinstance(value, list):
        return {reference for entry in value for reference in find_references(entry)}
    if not isinstance(value, dict):
        return set()
    if set(value) == {"Ref"}:
        return {(str(value["Ref"]), "")}
    if set(value) == {"Fn::GetAtt"}:
        name, attribute = _split_attribute(value["Fn::GetAtt"])
        return {(name, attribute)}
    found: set[tuple[str, str]] = set()
    if set(value) == {"Fn::Sub"}:
        text, extra = _split_sub(value["Fn::Sub"])
        names = {match[2] for match in _SUBSTITUTION.finditer(text) if not match[1]} - set(extra)
        found = {(name.partition(".")[0], name.partition(".")[2]) for name in names}
    return found | {reference for entry in value.values() for reference in find_references(entry)}


def _split_attribute(argument: Any) -> tuple[str, str]:
    name, _, attribute = argument.partition(".") if isinstance(argument, str) else (argument[0], "", argument[1])
    return str(name), str(attribute)


def _split_sub(argument: Any) -> tuple[str, Mapping[str, Any]]:
    return (argument, {}) if isinstance(argument, str) else (argument[0], argument[1])


def _sub(argument: Any, scope: Scope) -> str:
    text, extra = _split_sub(argument)

    def substitute(match: re.Match[str]) -> str:
        if match[1]:
            return f"${{{match[2]}}}"
        if match[2] in extra:
            return _text(evaluate(extra[match[2]], scope))
        name, _, attribute = match[2].partition(".")
        return _text(scope.attribute(name, attribute) if attribute else scope.ref(name))

    return _SUBSTITUTION.sub(substitute, text)


def _select(argument: Any, scope: Scope) -> Any:
    index, values = int(evaluate(argument[0], scope)), evaluate(argument[1], scope)
    if not 0 <= index < len(values):
        raise AssemblyError(f"Fn::Select cannot select nonexistent value at index {index}")
    return values[index]


def _find_in_map(argument: Any, scope: Scope) -> Any:
    name, first, second = (str(evaluate(entry, scope)) for entry in argument)
    return scope.mapping(name, first, second)


def _cidr(argument: Any, scope: Scope) -> list[str]:
    block, count, bits = evaluate(argument, scope)
    networks = ipaddress.ip_network(block).subnets(new_prefix=32 - int(bits))
    return [str(network) for _, network in zip(range(int(count)), networks, strict=False)]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_FUNCTIONS: dict[str, Callable[[Any, Scope], Any]] = {
    "Ref": lambda argument, scope: NO_VALUE if argument == "AWS::NoValue" else scope.ref(str(argument)),
    "Fn::GetAtt": lambda argument, scope: scope.attribute(*_split_attribute(argument)),
    "Fn::Join": lambda argument, scope: str(argument[0]).join(map(_text, evaluate(argument[1], scope))),
    "Fn::Sub": _sub,
    "Fn::Select": _select,
    "Fn::Split": lambda argument, scope: str(evaluate(argument[1], scope)).split(argument[0]),
    "Fn::If": lambda argument, scope: evaluate(argument[1 if scope.condition(argument[0]) else 2], scope),
    "Fn::FindInMap": _find_in_map,
    "Fn::Cidr": _cidr,
    "Fn::ImportValue": lambda argument, scope: scope.read_other_stack("Fn::ImportValue", evaluate(argument, scope)),
    "Fn::GetStackOutput": lambda argument, scope: scope.read_other_stack(
        "Fn::GetStackOutput", evaluate(argument, scope)
    ),
    "Fn::GetAZs": lambda argument, scope: scope.zones(str(evaluate(argument, scope) or "")),
    "Fn::Base64": lambda argument, scope: base64.b64encode(_text(evaluate(argument, scope)).encode()).decode(),
    "Fn::Equals": lambda argument, scope: _text(evaluate(argument[0], scope)) == _text(evaluate(argument[1], scope)),
    "Fn::Not": lambda argument, scope: not evaluate(argument[0], scope),
    "Fn::And": lambda argument, scope: all(evaluate(entry, scope) for entry in argument),
    "Fn::Or": lambda argument, scope: any(evaluate(entry, scope) for entry in argument),
    "Condition": lambda argument, scope: scope.condition(str(argument)),
}
