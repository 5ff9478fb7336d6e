"""Patches of objects: server-side apply with field managers, strategic merges, merges and lists of changes."""

import copy
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError
from cdk_rehearsal.kubernetes.stand_in.base.resources import Manifest, Resource
from cdk_rehearsal.kubernetes.stand_in.schemas.fields import (
    Field,
    find_value,
    list_fields,
    name_item,
    read_fields,
    remove_field,
    show_field,
    write_fields,
)
from cdk_rehearsal.kubernetes.stand_in.schemas.schema import (
    Node,
    Schema,
    get_list_keys,
    is_atomic,
    is_set,
    read_kind,
)

_UNMANAGED = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")
"""Of the metadata: what the server writes."""


def apply(
    schema: Schema, resource: Resource, live: Manifest, wanted: Manifest, *, manager: str, force: bool, now: str
) -> Manifest:
    """
    Return an object with what a field manager wants of it, and without what only that one wanted before.

    Args:
        schema: Schemas of the version.
        resource: Kind of the object.
        live: The object; its name alone where it does not exist.
        wanted: What the manager wants.
        manager: Name of the manager.
        force: Whether it takes fields that others own.
        now: Time of the change.

    Raises:
        ApiError: A field is unknown, or others own it and want another value.
    """
    check_fields(schema, resource, wanted)
    node = schema.get(resource)
    wanted = copy.deepcopy(wanted)
    for name in _UNMANAGED:
        wanted["metadata"].pop(name, None)
    new = set(list_fields(schema, node, wanted))
    managers = _read_managers(live)
    own = next((each for each in managers if _is_applied_by(each, manager)), None)
    others = [each for each in managers if each is not own]
    differing = {
        field for field in new if find_value(schema, node, live, field) != find_value(schema, node, wanted, field)
    }
    conflicts = _find_conflicts(differing, others)
    if conflicts and not force:
        raise _report_conflicts(conflicts)
    merged: Manifest = _merge(schema, node, copy.deepcopy(live), wanted)
    old = read_fields(own["fieldsV1"]) if own else set()
    kept = new.union(*(read_fields(each["fieldsV1"]) for each in others))
    for field in sorted(old - new, key=len, reverse=True):
        if not any(each[: len(field)] == field for each in kept):
            remove_field(schema, node, merged, field)
    taken = {field for fields in conflicts.values() for field in fields}
    entries = [_keep(each, taken) for each in others]
    entry = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": resource.api_version,
        "time": own["time"] if own and old == new else now,
        "fieldsType": "FieldsV1",
        "fieldsV1": write_fields(new),
    }
    merged["metadata"]["managedFields"] = [*(each for each in entries if each["fieldsV1"]), entry]
    return merged


def check_fields(schema: Schema, resource: Resource, wanted: Manifest) -> None:
    """Require that the schema has each field; the answer of the server has this very status."""
    mistakes = list(schema.find_mistakes(schema.get(resource), wanted))
    if mistakes:
        metadata = wanted["metadata"]
        where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {read_kind(wanted)}"
        listing = mistakes[0] if len(mistakes) == 1 else "errors:\n" + "\n".join(f"  {each}" for each in mistakes)
        raise ApiError(500, "", f"failed to create typed patch object ({where}): {listing}")


def own_changes(
    schema: Schema, resource: Resource, before: Manifest, after: Manifest, *, manager: str, part: str, now: str
) -> None:
    """
    Write into an object who owns what an update has changed.

    Args:
        schema: Schemas of the version.
        resource: Kind of the object.
        before: The object before.
        after: The object afterwards, which is changed.
        manager: Name of the manager.
        part: Subresource; empty for the object.
        now: Time of the change.
    """
    node = schema.get(resource)
    plain = [copy.deepcopy(each) for each in (before, after)]
    for each in plain:
        for name in _UNMANAGED:
            each.get("metadata", {}).pop(name, None)
    fields = set(list_fields(schema, node, plain[1]))
    gone = set(list_fields(schema, node, plain[0])) - fields
    changed = {
        field
        for field in fields
        if find_value(schema, node, plain[0], field) != find_value(schema, node, plain[1], field)
    }
    if not changed and not gone:
        return
    entries = [_keep(each, changed | gone) for each in _read_managers(after)]
    key = (manager, "Update", part)
    own = next((e for e in entries if (e["manager"], e["operation"], e.get("subresource", "")) == key), None)
    owned = changed | (read_fields(own["fieldsV1"]) if own else set())
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": resource.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": write_fields(owned),
        **({"subresource": part} if part else {}),
    }
    rest = [each for each in entries if each is not own and each["fieldsV1"]]
    after["metadata"]["managedFields"] = [*rest, *([entry] if owned else [])]


def merge_strategically(schema: Schema, node: Node, live: Any, patch: Any) -> Any:
    """Return a value with a strategic merge patch: items of lists are found by their merge key."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(live) if isinstance(live, dict) else {}
    for name, value in patch.items():
        if name.startswith("$setElementOrder/") or name in ("$retainKeys", "$patch"):
            continue
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            merged[field] = [each for each in merged.get(field, []) if each not in value]
            continue
        child = schema.enter(node, name) or {}
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, list) and "merge" in child.get("x-kubernetes-patch-strategy", ""):
            merged[name] = _merge_items(schema, child, merged.get(name) or [], value)
        elif isinstance(value, dict):
            merged[name] = (
                value
                if value.get("$patch") == "replace"
                else merge_strategically(schema, child, merged.get(name), value)
            )
        else:
            merged[name] = value
    return merged


def merge_plainly(live: Any, patch: Any) -> Any:
    """Return a value with a merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(live) if isinstance(live, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_plainly(merged.get(name), value)
    return merged


def change_by_list(live: Manifest, changes: list[dict[str, Any]]) -> Manifest:
    """
    Return an object with a list of changes (RFC 6902).

    Raises:
        ApiError: A change does not fit the object, or is none of `add`, `remove`, `replace` and `test`.
    """
    document: Manifest = copy.deepcopy(live)
    try:
        for change in changes:
            *path, last = (s.replace("~1", "/").replace("~0", "~") for s in change["path"].split("/")[1:])
            place: Any = document
            for step in path:
                place = place[int(step) if isinstance(place, list) else step]
            _change_once(place, last, change)
    except (AttributeError, KeyError, IndexError, ValueError, TypeError) as error:
        words = f"the server rejected our request due to an error in our request: {error}"
        raise ApiError(422, "Invalid", words) from error
    return document


def _change_once(place: Any, last: str, change: dict[str, Any]) -> None:
    step = last if isinstance(place, dict) or last == "-" else int(last)
    if change["op"] == "test":
        if place[step] != change["value"]:
            raise ValueError(f"testing value {change['path']} failed")
    elif change["op"] == "remove":
        del place[step]
    elif change["op"] == "replace":
        place[step] = change["value"]
    elif change["op"] != "add":
        raise ValueError(f"unexpected kind: {change['op']}")
    elif isinstance(place, dict):
        place[step] = change["value"]
    else:
        place.insert(len(place) if step == "-" else step, change["value"])


def _merge(schema: Schema, node: Node, live: Any, wanted: Any) -> Any:
    if isinstance(wanted, dict) and isinstance(live, dict) and not is_atomic(node):
        for name, value in wanted.items():
            live[name] = _merge(schema, schema.enter(node, name) or {}, live.get(name), value)
        return live
    if isinstance(wanted, list) and isinstance(live, list) and get_list_keys(node):
        items = {name_item(node, item): item for item in live}
        for item in wanted:
            step = name_item(node, item)
            items[step] = _merge(schema, schema.enter_items(node), items.get(step), item)
        return list(items.values())
    if isinstance(wanted, list) and isinstance(live, list) and is_set(node):
        return [*live, *(each for each in wanted if each not in live)]
    return wanted


def _merge_items(schema: Schema, node: Node, live: list[Any], patch: list[Any]) -> list[Any]:
    key = node.get("x-kubernetes-patch-merge-key")
    if key is None:
        return [*live, *(each for each in patch if each not in live)]
    merged = list(live)
    for item in patch:
        if not isinstance(item, dict):
            merged.append(item)  # which the schema refuses
            continue
        at = next((number for number, each in enumerate(merged) if each.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            merged = [each for each in merged if each.get(key) != item.get(key)]
        elif at is None:
            merged.append(item)
        else:
            merged[at] = merge_strategically(schema, schema.enter_items(node), merged[at], item)
    return merged


def _read_managers(manifest: Manifest) -> list[dict[str, Any]]:
    return list(manifest.get("metadata", {}).get("managedFields", ()))


def _is_applied_by(entry: dict[str, Any], manager: str) -> bool:
    return bool(entry["manager"] == manager and entry["operation"] == "Apply" and not entry.get("subresource"))


def _find_conflicts(differing: set[Field], others: list[dict[str, Any]]) -> dict[str, list[Field]]:
    """Return the fields that others own and want otherwise, by the words for their owner."""
    found: dict[str, list[Field]] = {}
    for entry in others:
        if shared := sorted(differing & read_fields(entry["fieldsV1"])):
            part = f' with subresource "{entry["subresource"]}"' if entry.get("subresource") else ""
            how = "" if entry["operation"] == "Apply" else f" using {entry['apiVersion']}"
            found[f'"{entry["manager"]}"{part}{how}'] = shared
    return found


def _report_conflicts(conflicts: dict[str, list[Field]]) -> ApiError:
    count = sum(len(fields) for fields in conflicts.values())
    parts = []
    for owner, fields in conflicts.items():
        shown = [show_field(field) for field in fields]
        parts.append(
            f"conflict with {owner}: {shown[0]}"
            if len(shown) == 1
            else f"conflicts with {owner}:\n- " + "\n- ".join(shown)
        )
    message = f"Apply failed with {count} conflict{'' if count == 1 else 's'}: " + "\n".join(parts)
    return ApiError(409, "Conflict", message)


def _keep(entry: dict[str, Any], without: set[Field]) -> dict[str, Any]:
    return {**entry, "fieldsV1": write_fields(read_fields(entry["fieldsV1"]) - without)}
