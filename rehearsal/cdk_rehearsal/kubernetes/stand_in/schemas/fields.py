"""Sets of fields, which say what a field manager owns of an object, and their form in `managedFields`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.schemas.schema import Node, Schema, get_list_keys, is_atomic, is_set

Step = str
"""Step to a part of an object: `f:` and a field, `k:` and the keys of an item, or `v:` and the value of one."""
Field = tuple[Step, ...]
_UNOWNED = (("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace"))


def list_fields(schema: Schema, node: Node, value: Any, at: Field = ()) -> Iterator[Field]:
    """Yield the fields of a value: those without fields of their own, and items of lists that are found by keys."""
    if isinstance(value, dict) and value and not is_atomic(node):
        for name, child in value.items():
            if (*at, f"f:{name}") not in _UNOWNED:
                yield from list_fields(schema, schema.enter(node, name) or {}, child, (*at, f"f:{name}"))
    elif isinstance(value, list) and value and get_list_keys(node):
        for child in value:
            step = name_item(node, child)
            yield (*at, step)
            yield from list_fields(schema, schema.enter_items(node), child, (*at, step))
    elif isinstance(value, list) and value and is_set(node):
        yield from ((*at, f"v:{json.dumps(child)}") for child in value)
    elif at:
        yield at


def name_item(node: Node, item: Mapping[str, Any]) -> Step:
    """Return the step to an item of a list that is found by keys."""
    keys = {key: item.get(key, _get_default(node, key)) for key in get_list_keys(node)}
    return f"k:{json.dumps({key: value for key, value in keys.items() if value is not None}, separators=(',', ':'))}"


def _get_default(node: Node, key: str) -> Any:
    # The one key with a default among the kinds that the stand-in keeps is that of ports.
    return "TCP" if key == "protocol" and "port" in str(node.get("x-kubernetes-list-map-keys")).lower() else None


def find_value(schema: Schema, node: Node, value: Any, field: Field) -> Any:
    """Return the value of a field; None when it is not there."""
    if not field:
        return value
    step, rest = field[0], field[1:]
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(value, dict) or name not in value:
            return None
        return find_value(schema, schema.enter(node, name) or {}, value[name], rest)
    for child in value if isinstance(value, list) else ():
        if step.startswith("v:"):
            if step == f"v:{json.dumps(child)}":
                return child
        elif name_item(node, child) == step:
            return find_value(schema, schema.enter_items(node), child, rest) if rest else True
    return None


def remove_field(schema: Schema, node: Node, value: Any, field: Field) -> None:
    """Remove a field, and the objects and lists around it that it leaves empty."""
    step, rest = field[0], field[1:]
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(value, dict) or name not in value:
            return
        if rest:
            remove_field(schema, schema.enter(node, name) or {}, value[name], rest)
        if not rest or value[name] in ({}, []):
            del value[name]
        return
    for child in list(value) if isinstance(value, list) else ():
        if step.startswith("v:") and step == f"v:{json.dumps(child)}":
            value.remove(child)
        elif step.startswith("k:") and name_item(node, child) == step:
            if rest:
                remove_field(schema, schema.enter_items(node), child, rest)
            else:
                value.remove(child)


def write_fields(fields: set[Field]) -> dict[str, Any]:
    """Return the form of a set in `managedFields`."""
    tree: dict[str, Any] = {}
    for field in sorted(fields):
        place = tree
        for step in field:
            place = place.setdefault(step, {})
        if field[-1].startswith("k:"):
            place["."] = {}
    return tree


def read_fields(tree: Mapping[str, Any], at: Field = ()) -> set[Field]:
    """Return the set of a form in `managedFields`."""
    found: set[Field] = set()
    for step, below in tree.items():
        if step == ".":
            found.add(at)
        elif below:
            found |= read_fields(below, (*at, step))
        else:
            found.add((*at, step))
    return found


def show_field(field: Field) -> str:
    """Return the path of a field as messages have it."""
    parts = []
    for step in field:
        if step.startswith("f:"):
            parts.append(f".{step[2:]}")
        elif step.startswith("v:"):
            parts.append(f"[={step[2:]}]")
        else:
            keys = json.loads(step[2:]).items()
            parts.append(f"[{','.join(f'{key}={json.dumps(value)}' for key, value in keys)}]")
    return "".join(parts)
