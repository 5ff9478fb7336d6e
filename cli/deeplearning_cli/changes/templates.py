"""
Comparison of templates: the resources that a deployment creates, updates, replaces and deletes. Pure.

The properties that replace their resource are in `replacement_rules.json`, taken from CloudFormation's own schemas. A
resource also changes when it refers to a replaced resource, or to an attribute that another one's update changes.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from deeplearning_cli.changes.effects import Change, Effect
from deeplearning_cli.changes.outcomes import judge

_KEPT = frozenset({"Retain", "RetainExceptOnCreate", "Snapshot"})
_MOVED_BY_UPDATES = {
    "AWS::EC2::LaunchTemplate": frozenset({"DefaultVersionNumber", "LatestVersionNumber"}),
    "Custom::PinnedImage": frozenset({"ImageId"}),
}
"""Attributes that change when their resource is updated in place."""
_UPDATE_POLICIES = frozenset({"AutoScalingReplacingUpdate", "AutoScalingRollingUpdate"})
_OWN_PLACES = {
    "AWS::EC2::NatGateway": ("AllocationId",),
    "AWS::EC2::Subnet": ("CidrBlock", "VpcId"),
    "AWS::EC2::VPCGatewayAttachment": ("InternetGatewayId",),
    "AWS::EFS::MountTarget": ("FileSystemId",),
}
"""Properties that no two resources of a type can share, beside names."""
_Resources = Mapping[str, Any]


@dataclass(frozen=True)
class _Update:
    """Resources of the deployed template and of the wanted one."""

    before: _Resources
    after: _Resources

    def describe(self, name: str, effect: Effect, properties: tuple[str, ...] = ()) -> Change:
        """Return the change of a resource."""
        resource = self.after.get(name) or self.before[name]
        path = str(resource.get("Metadata", {}).get("aws:cdk:path", name))
        return Change(name, path.removesuffix("/Resource"), resource["Type"], effect, properties)

    def update(self, name: str, properties: tuple[str, ...]) -> Change:
        """Return the change of a resource whose properties differ."""
        return self.describe(name, _judge(self.after[name], properties), properties)


def compare_templates(deployed: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return a change for each resource that differs between the templates, sorted by path."""
    update = _Update(deployed["Resources"], wanted["Resources"])
    before, after = update.before, update.after
    changes = {name: update.describe(name, Effect.CREATE) for name in after.keys() - before.keys()}
    for name in before.keys() - after.keys():
        is_kept = before[name].get("DeletionPolicy") in _KEPT
        changes[name] = update.describe(name, Effect.KEEP if is_kept else Effect.DELETE)
    for name in before.keys() & after.keys():
        found = tuple(sorted(find_differences(before[name].get("Properties", {}), after[name].get("Properties", {}))))
        if before[name]["Type"] != after[name]["Type"]:
            changes[name] = update.describe(name, Effect.REPLACE, ("Type",))
        elif found:
            changes[name] = update.update(name, found)
    _spread(changes, update)
    _refuse_same_names(changes, update)
    judged = (replace(each, outcomes=tuple(judge(each, before, after))) for each in changes.values())
    return tuple(sorted(judged, key=lambda change: change.path))


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


def _judge(resource: Mapping[str, Any], paths: tuple[str, ...]) -> Effect:
    if resource["Type"] == "AWS::CloudFormation::WaitCondition":
        return Effect.REFUSE
    rules = _read_rules().get(resource["Type"], {})
    if any(_is_covered(path, rule) for path in paths for rule in rules.get("always", ())):
        return Effect.REPLACE
    if resource["Type"] == "AWS::AutoScaling::AutoScalingGroup" and not _UPDATE_POLICIES & set(
        resource.get("UpdatePolicy", {})
    ):
        # CloudFormation user guide, UpdatePolicy attribute: only these policies replace the group or its instances.
        return Effect.UPDATE
    if any(_is_covered(path, rule) for path in paths for rule in rules.get("sometimes", ())):
        return Effect.MAY_REPLACE
    return Effect.UPDATE


def _is_covered(path: str, rule: str) -> bool:
    """Return whether a path equals that of a rule, or is above or below it."""
    return f"{path}.".startswith(f"{rule}.") or f"{rule}.".startswith(f"{path}.")


def _spread(changes: dict[str, Change], update: _Update) -> None:
    """Add the changes of resources that refer to what other changes move, until none is added."""
    known: tuple[Change, ...] = ()
    while known != (known := tuple(changes.values())):
        replaced = {change.logical_id for change in known if change.effect is Effect.REPLACE}
        updated = {change.logical_id for change in known if change.effect is Effect.UPDATE}

        def is_moved(name: str, attribute: str, replaced: set[str] = replaced, updated: set[str] = updated) -> bool:
            kind = update.after.get(name, {}).get("Type", "")
            return name in replaced or (name in updated and attribute in _MOVED_BY_UPDATES.get(kind, ()))

        for name, resource in update.after.items():
            earlier = changes.get(name)
            if earlier is not None and earlier.effect not in (Effect.UPDATE, Effect.MAY_REPLACE):
                continue
            found = set(_find_references(resource.get("Properties", {}), is_moved))
            if found and not found <= set(earlier.properties if earlier else ()):
                changes[name] = update.update(name, tuple(sorted(found | set(earlier.properties if earlier else ()))))


def _find_references(value: Any, is_moved: Callable[[str, str], bool], path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        target = (value.get("Ref"), "") if "Ref" in value else value.get("Fn::GetAtt")
        if isinstance(target, (list, tuple)) and is_moved(*target):
            yield path
            return
        for key, item in value.items():
            is_property = not (len(value) == 1 and _is_intrinsic(value))
            below = (f"{path}.{key}" if path else key) if is_property else path
            yield from _find_references(item, is_moved, below)
    elif isinstance(value, list):
        for item in value:
            yield from _find_references(item, is_moved, path)


def _refuse_same_names(changes: dict[str, Change], update: _Update) -> None:
    """Refuse replacements by a resource that cannot exist beside the former one, which ends only afterwards."""
    replaced = {change.logical_id for change in changes.values() if change.effect is Effect.REPLACE}
    for name in sorted(replaced):
        kind = update.after[name]["Type"]
        one, other = (side[name].get("Properties", {}) for side in (update.before, update.after))
        for keys in (_read_rules().get(kind, {}).get("name", ()), _OWN_PLACES.get(kind, ())):
            own = {key: other.get(key) for key in keys}
            moved = any(_find_references(own, lambda target, _: target in replaced))
            is_same = any(own.values()) and own == {key: one.get(key) for key in keys} and not moved
            if is_same and not _is_in_another_zone(one, other, update):
                changes[name] = replace(changes[name], effect=Effect.REFUSE)


def _is_in_another_zone(one: Mapping[str, Any], other: Mapping[str, Any], update: _Update) -> bool:
    """Return whether the subnets of two versions of a resource are known to be in two zones."""
    subnets = [
        side.get(properties.get("SubnetId", {}).get("Ref"), {})
        for side, properties in ((update.before, one), (update.after, other))
        if isinstance(properties.get("SubnetId", {}), dict)
    ]
    zones = [subnet.get("Properties", {}).get("AvailabilityZone") for subnet in subnets]
    return len(zones) == len(list(filter(None, zones))) == 2 and zones[0] != zones[1]  # noqa: PLR2004 - before, after


@cache
def _read_rules() -> dict[str, Any]:
    rules: dict[str, Any] = json.loads(Path(__file__).with_name("replacement_rules.json").read_text())
    return rules
