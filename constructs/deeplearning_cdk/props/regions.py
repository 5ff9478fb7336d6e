"""Regions of AWS, as the CDK knows them, and the judgement of a name that it does not know."""

import difflib
import re
from functools import cache
from typing import Annotated, Literal

from aws_cdk import IResource, Stack, Token, region_info
from constructs import Construct

from deeplearning_cdk.props.check import Rule, show_value
from deeplearning_cdk.props.rules import matching

_DIRECTIONS = frozenset("north south east west central northeast northwest southeast southwest".split())  # noqa: SIM905
_SUGGESTED = 3
_FORM = re.compile(r"(?P<area>[a-z]{2,4}(-[a-z]+)*)-(?P<direction>[a-z]+)-[1-9]")


@cache
def list_regions() -> tuple[str, ...]:
    """Return the regions that the CDK knows."""
    return tuple(region_info.Fact.regions)


@cache
def find_partition(region: str) -> str:
    """Return the partition of a region, such as `aws-cn` of cn-north-1; `aws` for one that the CDK does not know."""
    return region_info.RegionInfo.get(region).partition or "aws"


def may_be_region(name: str) -> bool:
    """
    Return whether a name is a region, or one that AWS may have opened after this release.

    A new region has a known area or the two letters of a country, a direction and a number, such as mx-central-1 when
    it was new. Two letters in the wrong order, as in su-east-1, are a known area misspelt.
    """
    if name in list_regions():
        return True
    found = _FORM.fullmatch(name)
    if found is None or found["direction"] not in _DIRECTIONS:
        return False
    areas = {match["area"] for each in list_regions() if (match := _FORM.fullmatch(each))}
    area = found["area"]
    is_country = re.fullmatch("[a-z]{2}", area) is not None
    return area in areas or (is_country and area[::-1] not in areas)


def suggest_regions(name: str) -> str:
    """Return the known regions with the names nearest to another; empty if none is near."""
    wanted = name.strip().lower()
    near = difflib.get_close_matches(wanted, list_regions(), n=2 * _SUGGESTED, cutoff=0.7)

    def rank(region: str) -> tuple[bool, float, str]:
        # Swapped letters are the most frequent error.
        is_swapped = sorted(region) == sorted(wanted)
        return (not is_swapped, -difflib.SequenceMatcher(None, wanted, region).ratio(), region)

    return ", ".join(sorted(near, key=rank)[:_SUGGESTED])


def may_be_zone(name: str) -> bool:
    """Return whether a zone may exist: its name begins with that of its region, local zones included."""
    found = re.match(r"[a-z]+(-[a-z]+)+-[0-9]", name)
    return found is not None and may_be_region(found[0])


def check_region(prop: str, region: str) -> None:
    """
    Check that a region may exist, unless it is known at deployment only.

    Raises:
        ValueError: It is misspelt; the message has the nearest names.
    """
    if not Token.is_unresolved(region) and not may_be_region(region):
        nearest = suggest_regions(region) or "e.g. us-east-1"
        raise ValueError(f"{prop} must be an AWS region, got {show_value(region)}; write {nearest}")


def check_environment(prop: str, resource: IResource, scope: Construct, *kinds: Literal["region", "account"]) -> None:
    """
    Check that a resource is in the region and account of a stack, or in one of `kinds` alone, if both are known.

    Raises:
        ValueError: It is in another.
    """
    stack = Stack.of(scope)
    for kind in kinds or ("region", "account"):
        ours, other = getattr(stack, kind), getattr(resource.env, kind)
        if ours != other and not Token.is_unresolved(ours) and not Token.is_unresolved(other):
            raise ValueError(
                f"{prop} must be in the {kind} of the cluster's stack {stack.node.path}, {ours}, got "
                f"{resource.node.path} in {other}; pass one of {ours}, or create the cluster in a stack of {other}"
            )


RegionName = Annotated[
    str,
    matching(r"[a-z]{2,4}(-[a-z]+)+-[0-9]", "be a region", "write e.g. us-east-1"),
    Rule(must="be a region of AWS", remedy="correct its name, e.g. us-east-1", is_kept=may_be_region),
]
"""Name of a region."""
