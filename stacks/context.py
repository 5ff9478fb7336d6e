"""
Reads what the user chose: the context of `cdk.json`, `-c key=value`, and what the CDK CLI passes on.

Every key is checked before a stack is made. A wrong one is a `ContextError` that names the key, the rule and a way
out, and an unknown one names the nearest.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplearning_cdk.nodes.tag_keys import TagKey, TagValue
from deeplearning_cdk.props.check import check_prop, show_value
from stacks.cluster_context import CLUSTER_KEYS, PLACE_KEYS, VpcIds, check_cluster
from stacks.context_values import ContextError, Reader, read_pairs, read_regions, read_text

DEFAULT_STACK_NAME = "deeplearning-cluster"

_STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")
_STACK_KEYS: Mapping[str, Reader] = {
    "stack_name": read_text,
    "regions": read_regions,
    "availability_zones": read_pairs,
    "tags": read_pairs,
}
_READERS: Mapping[str, Reader] = {**_STACK_KEYS, **CLUSTER_KEYS, **PLACE_KEYS}
# What belongs to one region, and therefore cannot be chosen for several.
_REGIONAL_KEYS = ("availability_zone", "file_system_id", "lustre_bucket", *PLACE_KEYS)


@dataclass(frozen=True)
class StackChoice:
    """
    One stack that the user asked for.

    Attributes:
        name: The stack's name.
        region: Its region; None for the CLI's.
        tags: Its tags.
        cluster: Props of the cluster.
        vpc: Ids of the user's VPC; None for a new one.
        mount_target_security_group_id: Group of the mount target that the user's file system has; None without.
        encryption_key_arn: The user's key; None without.
        alarm_topic_arn: Where the user's alarms go; None without.
    """

    name: str
    region: str | None
    tags: Mapping[str, str]
    cluster: Mapping[str, Any]
    vpc: VpcIds | None = None
    mount_target_security_group_id: str | None = None
    encryption_key_arn: str | None = None
    alarm_topic_arn: str | None = None


def read_context(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """
    Collect the context, from the CLI when it runs the app, else from `cdk.json` and the command line.

    Args:
        arguments: The app's own arguments, `-c key=value` each.
        environment: The process's environment.
        folder: Where `cdk.json` is.

    Raises:
        ContextError: An argument is not `-c key=value`.
    """
    context: dict[str, Any] = {}
    if "CDK_CONTEXT_JSON" not in environment and (folder / "cdk.json").is_file():
        context |= json.loads((folder / "cdk.json").read_text()).get("context", {})
    context |= json.loads(environment.get("CDK_CONTEXT_JSON", "{}"))
    # A context that is too long for the environment comes in a file.
    if overflow := environment.get("CONTEXT_OVERFLOW_LOCATION_ENV"):
        context |= json.loads(Path(overflow).read_text())
    return context | _read_arguments(arguments)


def _read_arguments(arguments: Sequence[str]) -> dict[str, str]:
    pairs = {}
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        key, sign, value = (rest.pop(0) if rest else "").partition("=")
        if option not in {"-c", "--context"} or not key or not sign:
            raise ContextError(f"arguments must be -c key=value, got {' '.join(arguments)!r}; write -c before each")
        pairs[key] = value
    return pairs


def read_choices(context: Mapping[str, Any]) -> list[StackChoice]:
    """
    Read the stacks that the user asked for: one a region.

    Args:
        context: The context.

    Raises:
        ValueError: A key is unknown, or a value cannot work.
    """
    values = {key: _READERS[key](key, value) for key, value in context.items() if _is_ours(key)}
    cluster = {key: value for key, value in values.items() if key in CLUSTER_KEYS}
    regions = values.get("regions", [None])
    zones = _read_zones(values)
    clusters = {
        region: cluster | ({"availability_zone": zones[region]} if region in zones else {}) for region in regions
    }
    for props in clusters.values():
        check_cluster(props, values.get("vpc"))
    if len(regions) > 1 and (regional := [key for key in _REGIONAL_KEYS if key in values]):
        raise ContextError(f"{regional[0]} must be given for one region, got {len(regions)}; deploy each by itself")
    return [
        StackChoice(
            name=_name_stack(values, region if len(regions) > 1 else None),
            region=region,
            tags=_read_tags(values),
            cluster=clusters[region],
            vpc=values.get("vpc"),
            mount_target_security_group_id=values.get("mount_target_security_group"),
            encryption_key_arn=values.get("encryption_key"),
            alarm_topic_arn=values.get("alarm_topic"),
        )
        for region in regions
    ]


def _is_ours(key: str) -> bool:
    """Tell our keys from CDK's own, which have an @ or a colon, or are the CLI's."""
    if key in _READERS:
        return True
    if "@" in key or ":" in key or key.startswith("cli-") or key == "acknowledged-issue-numbers":
        return False
    nearest = difflib.get_close_matches(key, _READERS, n=1, cutoff=0)
    raise ContextError(f"context must have only known keys, got {show_value(key)}; did you mean {nearest[0]}?")


def _read_zones(values: Mapping[str, Any]) -> dict[str, str]:
    zones: dict[str, str] = values.get("availability_zones", {})
    for region, zone in zones.items():
        if region not in values.get("regions", []):
            raise ContextError(
                f"availability_zones must be of chosen regions, got {show_value(region)}; add it to regions"
            )
        if not zone.startswith(region):
            raise ContextError(f"availability_zones must be of their region, got {region}={zone}; write {region}a")
    return zones


def _name_stack(values: Mapping[str, Any], region: str | None) -> str:
    name = values.get("stack_name", DEFAULT_STACK_NAME)
    if not _STACK_NAME.fullmatch(name):
        raise ContextError(
            f"stack_name must be letters, digits and hyphens, got {show_value(name)}; begin it with a letter"
        )
    return f"{name}-{region}" if region else str(name)


def _read_tags(values: Mapping[str, Any]) -> dict[str, str]:
    tags: dict[str, str] = values.get("tags", {})
    for key, value in tags.items():
        check_prop("tag key", key, TagKey)
        check_prop(f"tag {key}", value, TagValue)
    return {"application": "deeplearning-cdk"} | tags
