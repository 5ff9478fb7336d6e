"""
Comparison of templates: the resources that a deployment creates, updates, replaces and deletes. Pure.

The properties that replace their resource are in `replacement_rules.json`, taken from CloudFormation's own schemas. A
resource is also replaced when such a property refers to a replaced resource.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

_KEPT = frozenset({"Retain", "RetainExceptOnCreate", "Snapshot"})
STATEFUL = frozenset(
    {
        "AWS::Backup::BackupVault",
        "AWS::DynamoDB::Table",
        "AWS::EFS::FileSystem",
        "AWS::FSx::FileSystem",
        "AWS::KMS::Key",
        "AWS::Logs::LogGroup",
    }
)
"""Types of resources with users' data."""
EMR_CLUSTER = "AWS::EMR::Cluster"


class Effect(Enum):
    """Effect of a deployment on a resource."""

    CREATE = "create"
    UPDATE = "update"
    MAY_REPLACE = "may replace"
    REPLACE = "replace"
    DELETE = "delete"
    KEEP = "leave behind"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Change:
    """
    Change of one resource by a deployment.

    Attributes:
        path: Its path in the app, or else its logical id.
        properties: Paths of the properties that differ.
    """

    logical_id: str
    path: str
    resource_type: str
    effect: Effect
    properties: tuple[str, ...] = ()

    @property
    def loses_data(self) -> bool:
        """True if users' data is deleted, or replaced by a new and empty resource."""
        return self.resource_type in STATEFUL and self._goes

    @property
    def ends_jobs(self) -> bool:
        """True if a cluster on EMR ends, and with it the jobs on it: its instances are no resources of their own."""
        return self.resource_type == EMR_CLUSTER and self._goes

    @property
    def _goes(self) -> bool:
        return self.effect in (Effect.REPLACE, Effect.MAY_REPLACE, Effect.DELETE)


def compare_templates(deployed: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return a change for each resource that differs between the templates, sorted by path."""
    before, after = deployed["Resources"], wanted["Resources"]
    changes = {name: _describe(name, after[name], Effect.CREATE) for name in after.keys() - before.keys()}
    changes |= {name: _remove(name, before[name]) for name in before.keys() - after.keys()}
    for name in before.keys() & after.keys():
        found = tuple(sorted(find_differences(before[name].get("Properties", {}), after[name].get("Properties", {}))))
        if before[name]["Type"] != after[name]["Type"]:
            changes[name] = _describe(name, after[name], Effect.REPLACE, ("Type",))
        elif found:
            changes[name] = _describe(name, after[name], _judge(after[name]["Type"], found), found)
    _spread_replacements(changes, after)
    return tuple(sorted(changes.values(), key=lambda change: change.path))


def find_differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the paths that differ, with `*` for the entries of lists."""
    if isinstance(before, dict) and isinstance(after, dict) and not _is_intrinsic(before) and not _is_intrinsic(after):
        for key in before.keys() | after.keys():
            below = f"{path}.{key}" if path else key
            if key not in before or key not in after:
                yield below
            else:
                yield from find_differences(before[key], after[key], below)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from set(find_differences(one, other, f"{path}.*"))
    elif before != after:
        yield path


def _is_intrinsic(value: dict[str, Any]) -> bool:
    return len(value) == 1 and (next(iter(value)) == "Ref" or next(iter(value)).startswith("Fn::"))


def _judge(resource_type: str, paths: tuple[str, ...]) -> Effect:
    if resource_type == "AWS::CloudFormation::WaitCondition":
        return Effect.REFUSE
    rules = _read_rules().get(resource_type, {})
    if any(_is_covered(path, rule) for path in paths for rule in rules.get("always", ())):
        return Effect.REPLACE
    if any(_is_covered(path, rule) for path in paths for rule in rules.get("sometimes", ())):
        return Effect.MAY_REPLACE
    return Effect.UPDATE


def _is_covered(path: str, rule: str) -> bool:
    """Return whether a path equals that of a rule, or is above or below it."""
    return f"{path}.".startswith(f"{rule}.") or f"{rule}.".startswith(f"{path}.")


def _spread_replacements(changes: dict[str, Change], resources: Mapping[str, Any]) -> None:
    """Mark resources as replaced that refer to a replaced resource in a property that replaces them."""
    replaced = {name for name, change in changes.items() if change.effect is Effect.REPLACE}
    while replaced:
        found = {
            name: paths
            for name, resource in resources.items()
            if (name not in changes or changes[name].effect in (Effect.UPDATE, Effect.MAY_REPLACE))
            and (paths := tuple(sorted(_find_references(resource.get("Properties", {}), replaced))))
        }
        replaced = set()
        for name, paths in found.items():
            earlier = changes[name].properties if name in changes else ()
            merged = tuple(sorted({*earlier, *paths}))
            effect = _judge(resources[name]["Type"], merged)
            changes[name] = _describe(name, resources[name], effect, merged)
            if effect is Effect.REPLACE:
                replaced.add(name)


def _find_references(value: Any, names: set[str], path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        target = value.get("Ref") or value.get("Fn::GetAtt")
        if (target[0] if isinstance(target, list) else target) in names:
            yield path
            return
        for key, item in value.items():
            is_property = not (len(value) == 1 and _is_intrinsic(value))
            yield from _find_references(item, names, (f"{path}.{key}" if path else key) if is_property else path)
    elif isinstance(value, list):
        for item in value:
            yield from _find_references(item, names, path)


def _remove(name: str, resource: Mapping[str, Any]) -> Change:
    return _describe(name, resource, Effect.KEEP if resource.get("DeletionPolicy") in _KEPT else Effect.DELETE)


def _describe(name: str, resource: Mapping[str, Any], effect: Effect, properties: tuple[str, ...] = ()) -> Change:
    path = str(resource.get("Metadata", {}).get("aws:cdk:path", name))
    return Change(name, path.removesuffix("/Resource"), resource["Type"], effect, properties)


@cache
def _read_rules() -> dict[str, Any]:
    rules: dict[str, Any] = json.loads(Path(__file__).with_name("replacement_rules.json").read_text())
    return rules
