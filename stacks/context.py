"""
The user's choices: the context of `cdk.json`, of `-c key=value`, and of the CDK CLI.

The keys of a stack are read here, those of its cluster by `stacks.reader` when the stack is created.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deeplearning_cdk.props.check import check_prop, show_value
from deeplearning_cdk.props.regions import may_be_region, suggest_regions
from deeplearning_cdk.props.tags import TagKey, TagValue
from stacks.cluster_stack import DEFAULT_PLATFORM, PLATFORMS, StackChoice
from stacks.reader import list_keys, parse_json

DEFAULT_STACK_NAME = "deeplearning-cluster"

_STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")
_STACK_KEYS = ("platform", "stack_name", "regions", "availability_zones", "tags")
_REGIONAL_KEYS = ("network.", "storage.file_system", "encryption_key", "alarm_topic")
"""Keys of resources in one region, which therefore cannot be set for several."""
_OF_ALL_REGIONS = ("network.cidr", "network.isolated", "network.efa")


def read_context(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """
    Collect the context, from the CLI when it runs the app, else from `cdk.json` and the command line.

    Args:
        arguments: The app's own arguments, `-c key=value` each.
        environment: The process's environment.
        folder: Folder of `cdk.json`.

    Raises:
        ValueError: An argument is not `-c key=value`.
    """
    context: dict[str, Any] = {}
    if "CDK_CONTEXT_JSON" not in environment and (folder / "cdk.json").is_file():
        context |= json.loads((folder / "cdk.json").read_text()).get("context", {})
    context |= json.loads(environment.get("CDK_CONTEXT_JSON", "{}"))
    # The CLI passes a context that is too long for the environment in a file.
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
            raise ValueError(f"arguments must be -c key=value, got {' '.join(arguments)!r}; write -c before each")
        pairs[key] = value
    return pairs


def read_choices(context: Mapping[str, Any]) -> list[StackChoice]:
    """
    Return the user's stacks, one per region.

    Raises:
        ValueError: A key is unknown, or a value of a stack cannot work.
    """
    platform = _read_platform(context.get("platform", DEFAULT_PLATFORM))
    known = [*_STACK_KEYS, *list_keys(PLATFORMS[platform].kind)]
    ours = {key: value for key, value in context.items() if _is_ours(key, known)}
    cluster = {key: value for key, value in ours.items() if key not in _STACK_KEYS}
    regions = _read_regions(ours.get("regions")) or [None]
    zones = _read_zones(ours.get("availability_zones", {}), regions)
    tags = {"application": "deeplearning-cdk"} | _read_tags(ours.get("tags", {}))
    if len(regions) > 1 and (regional := [key for key in _spell_out(cluster) if _is_regional(key)]):
        raise ValueError(f"{regional[0]} must be given for one region, got {len(regions)}; deploy each by itself")
    return [
        StackChoice(
            name=_name_stack(ours.get("stack_name", DEFAULT_STACK_NAME), region if len(regions) > 1 else None),
            region=region,
            tags=tags,
            cluster=cluster | ({"network.availability_zone": zones[region]} if region in zones else {}),
            platform=platform,
        )
        for region in regions
    ]


def _read_platform(value: Any) -> str:
    if not isinstance(value, str) or value not in PLATFORMS:
        raise ValueError(f"platform must be one of {', '.join(PLATFORMS)}, got {show_value(value)}; write one of them")
    return value


def _is_ours(key: str, known: Sequence[str]) -> bool:
    """Return whether a key is ours, not one of the CDK, which have an @ or a colon, or of its CLI."""
    if key in known:
        return True
    if "@" in key or ":" in key or key.startswith("cli-") or key == "acknowledged-issue-numbers":
        return False
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0)
    raise ValueError(f"context must have only known keys, got {show_value(key)}; did you mean {nearest[0]}?")


def _spell_out(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of a cluster; an object is spelled out as its single keys."""
    for key, value in cluster.items():
        document = parse_json(key, value)
        yield from (f"{key}.{name}" for name in document) if isinstance(document, dict) else (key,)


def _is_regional(key: str) -> bool:
    return key.startswith(_REGIONAL_KEYS) and key not in _OF_ALL_REGIONS


def _read_regions(value: Any) -> list[str | None]:
    if value is None:
        return []
    regions = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    example = "write e.g. -c regions=us-east-1,eu-west-1"
    if not isinstance(regions, list) or not regions:
        raise ValueError(f"regions must be a list, got {show_value(value)}; {example}")
    for region in regions:
        if not isinstance(region, str) or not may_be_region(region):
            nearest = suggest_regions(region) if isinstance(region, str) else ""
            raise ValueError(
                f"regions must be AWS regions, got {show_value(region)}; "
                + (f"write {nearest}" if nearest else example)
            )
    if len(set(regions)) < len(regions):
        raise ValueError(f"regions must name each region once, got {','.join(regions)}; leave the second one out")
    return list(regions)


def _read_pairs(key: str, value: Any) -> dict[str, str]:
    """Return an object of texts, or `name=value` with commas between them."""
    if isinstance(value, str):
        parts = [item.strip().partition("=") for item in value.split(",")]
        pairs = {name: text for name, sign, text in parts if name and sign and text}
        is_whole = len(pairs) == len(parts)
    else:
        pairs = dict(value) if isinstance(value, dict) else {}
        is_whole = isinstance(value, dict) and all(isinstance(text, str) for text in pairs.values())
    if not is_whole:
        raise ValueError(
            f"{key} must be name=value pairs, got {show_value(value)}; write -c {key}=name=value,name=value"
        )
    return pairs


def _read_zones(value: Any, regions: Sequence[str | None]) -> dict[str | None, str]:
    zones: dict[str | None, str] = {}
    for region, zone in _read_pairs("availability_zones", value).items():
        if region not in regions:
            raise ValueError(
                f"availability_zones must be of chosen regions, got {show_value(region)}; add it to regions"
            )
        if not zone.startswith(region):
            raise ValueError(f"availability_zones must be of their region, got {region}={zone}; write {region}a")
        zones[region] = zone
    return zones


def _name_stack(name: Any, region: str | None) -> str:
    if not isinstance(name, str) or not _STACK_NAME.fullmatch(name):
        raise ValueError(
            f"stack_name must be letters, digits and hyphens, got {show_value(name)}; begin it with a letter"
        )
    return f"{name}-{region}" if region else name


def _read_tags(value: Any) -> dict[str, str]:
    tags = _read_pairs("tags", value)
    for key, text in tags.items():
        check_prop("tag key", key, TagKey)
        check_prop(f"tag {key}", text, TagValue)
    return tags
