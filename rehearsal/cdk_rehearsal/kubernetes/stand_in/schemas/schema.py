"""Schemas of a version of Kubernetes: the fields of its objects, and how lists of them are merged."""

import functools
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.extras import describe_missing
from cdk_rehearsal.kubernetes.stand_in.base.clock import parse_time
from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError
from cdk_rehearsal.kubernetes.stand_in.base.resources import Manifest, Resource
from cdk_rehearsal.kubernetes.stand_in.base.selectors import read_quantity

Node = Mapping[str, Any]
"""Schema of a value."""
_PACKAGE = "kubernetes_validate"
_REFERENCE = "#/$defs/"
_FREE = frozenset({"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "io.k8s.apimachinery.pkg.runtime.RawExtension"})
"""Types whose content nobody checks."""


def find_schemas() -> Path:
    """Return the folder with the schemas of each version; UnavailableError without their package."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise UnavailableError(describe_missing(_PACKAGE, extra="rehearsal"))
    return Path(found.origin).parent / "kubernetes-json-schema"


@functools.cache
def read_schema(version: str) -> "Schema":
    """
    Return the schemas of a version.

    Args:
        version: Minor version, such as `1.35`.

    Raises:
        UnavailableError: The package of the schemas is absent, or does not know the version.
    """
    path = find_schemas() / f"v{version}.0-local" / "_definitions.json"
    if not path.exists():
        known = sorted(folder.name.split(".0-")[0][1:] for folder in find_schemas().glob("v*-local"))
        raise UnavailableError(f"version must be one of {', '.join(known)}, got {version}")
    return Schema(json.loads(path.read_text(encoding="utf-8"))["$defs"])


def parse_version(version: str) -> tuple[int, int]:
    """Return the numbers of a minor version."""
    major, minor = version.split(".")
    return int(major), int(minor)


class Schema:
    """The types of a version."""

    def __init__(self, types: Mapping[str, Node]) -> None:
        self._types = types
        self._kinds = {
            (kind["group"], kind["version"], kind["kind"]): {"$ref": _REFERENCE + name}
            for name, node in types.items()
            for kind in node.get("x-kubernetes-group-version-kind", ())
        }

    def get(self, resource: Resource) -> Node:
        """Return the schema of a kind of objects."""
        return self._resolve(self._kinds[resource.group, resource.version, resource.kind])

    def enter(self, node: Node, name: str) -> Node | None:
        """Return the schema of a field; None when the type does not have it."""
        fields = node.get("properties")
        if fields is None:
            other = node.get("additionalProperties", {})
            return self._resolve(other) if isinstance(other, dict) else {}
        return self._resolve(fields[name]) if name in fields else None

    def enter_items(self, node: Node) -> Node:
        """Return the schema of a list's items."""
        return self._resolve(node.get("items", {}))

    def find_mistakes(self, node: Node, value: Any, path: str = "") -> Iterator[str]:
        """Yield what a server-side apply refuses: unknown fields, and values of another type."""
        if isinstance(value, dict) and _allows(node, "object"):
            for name, child in value.items():
                schema = self.enter(node, name)
                if schema is None:
                    yield f"{path}.{name}: field not declared in schema"
                else:
                    yield from self.find_mistakes(schema, child, f"{path}.{name}")
        elif isinstance(value, list) and _allows(node, "array"):
            keys = node.get("x-kubernetes-list-map-keys", ())
            for number, child in enumerate(value):
                at = f"[{number}]"
                if keys and isinstance(child, dict):
                    at = f"[{','.join(f'{key}={json.dumps(child[key])}' for key in keys if key in child)}]"
                yield from self.find_mistakes(self.enter_items(node), child, f"{path}{at}")
        elif mistake := _check_type(node, value):
            yield f"{path}: {mistake}"

    def find_missing(self, node: Node, value: Any, path: str = "") -> Iterator[str]:
        """Yield the fields that a type requires and a value lacks, in the words of the server."""
        if isinstance(value, dict):
            for name in node.get("required", ()):
                if value.get(name) in (None, ""):
                    yield f"{path}.{name}: Required value".removeprefix(".")
            for name, child in value.items():
                yield from self.find_missing(self.enter(node, name) or {}, child, f"{path}.{name}")
        elif isinstance(value, list):
            for number, child in enumerate(value):
                yield from self.find_missing(self.enter_items(node), child, f"{path}[{number}]")

    def drop_unknown(self, node: Node, value: Any, path: str = "") -> Iterator[str]:
        """Remove the fields that types do not have, as the server does outside of applies, and yield their paths."""
        if isinstance(value, dict):
            for name in list(value):
                schema = self.enter(node, name)
                at = f"{path}.{name}" if path else name
                if schema is None:
                    del value[name]
                    yield at
                else:
                    yield from self.drop_unknown(schema, value[name], at)
        elif isinstance(value, list):
            for number, child in enumerate(value):
                yield from self.drop_unknown(self.enter_items(node), child, f"{path}[{number}]")

    def _resolve(self, node: Node) -> Node:
        reference = node.get("$ref")
        if reference is None:
            return node
        name = reference.removeprefix(_REFERENCE)
        return {} if name in _FREE else {**self._types[name], **{key: node[key] for key in node if key != "$ref"}}


def get_list_keys(node: Node) -> Sequence[str]:
    """Return the keys by which items of a list are found; none for a list that is replaced as a whole."""
    keys: Sequence[str] = node.get("x-kubernetes-list-map-keys", ())
    return keys if node.get("x-kubernetes-list-type") == "map" else ()


def is_set(node: Node) -> bool:
    """Return whether a list is a set of values."""
    return node.get("x-kubernetes-list-type") == "set"


def is_atomic(node: Node) -> bool:
    """Return whether an object is replaced as a whole."""
    return node.get("x-kubernetes-map-type") == "atomic"


def read_kind(manifest: Manifest) -> str:
    """Return the kind of an object as messages have it."""
    return f"{manifest.get('apiVersion', '')}, Kind={manifest.get('kind', '')}"


def drop_nulls(value: Any) -> Any:
    """Return a value without the fields and items that are null, which count as left out."""
    if isinstance(value, dict):
        return {name: drop_nulls(child) for name, child in value.items() if child is not None}
    return [drop_nulls(child) for child in value if child is not None] if isinstance(value, list) else value


def _allows(node: Node, name: str) -> bool:
    kinds = _list_kinds(node)
    return not kinds or name in kinds


def _list_kinds(node: Node) -> Sequence[str]:
    """Return the types that a value may have: one where it is required, and `null` besides otherwise."""
    kinds: str | Sequence[str] = node.get("type", ())
    return (kinds,) if isinstance(kinds, str) else kinds


def _check_type(node: Node, value: Any) -> str:
    if value is None:
        return ""
    if "oneOf" in node:
        return _check_quantity(node, value)
    if node.get("format") == "date-time" and isinstance(value, str):
        return _check_time(value)
    text = json.dumps(value)
    shown = {dict: "map[string]interface {}", list: "[]interface {}", str: "string", bool: "bool"}.get(type(value), "")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    mistakes = {
        "integer": _check_integer(node, value) if is_number else f"expected numeric (int or float), got {shown}",
        "number": "" if is_number else f"expected numeric (int or float), got {shown}",
        "string": "" if isinstance(value, str) else f"expected string, got &value.valueUnstructured{{Value:{text}}}",
        "boolean": "" if isinstance(value, bool) else f"expected boolean, got {text}",
        "object": "" if isinstance(value, dict) else f"expected map, got &{{{text}}}",
        "array": "" if isinstance(value, list) else f"expected list, got &{{{text}}}",
    }
    return next((mistakes[kind] for kind in _list_kinds(node) if kind in mistakes), "")


def _check_integer(node: Node, value: float) -> str:
    bits = 31 if node.get("format") == "int32" else 63
    if isinstance(value, float) or not -(2**bits) <= value < 2**bits:
        return f"cannot unmarshal number {value} into a field of type {node.get('format', 'int64')}"
    return ""


def _check_quantity(node: Node, value: Any) -> str:
    """Check a quantity, or a number that may have a name or a unit."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return "expected string or number"
    if any("number" in _list_kinds(each) for each in node["oneOf"]):
        try:
            read_quantity(value)
        except ApiError as error:
            return error.message
    return ""


def _check_time(value: str) -> str:
    try:
        parse_time(value)
    except ValueError:
        return f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse'
    return ""
