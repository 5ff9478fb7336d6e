"""Selectors of labels and fields, and quantities of resources."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError
from cdk_rehearsal.kubernetes.stand_in.base.resources import Manifest

_SET = re.compile(r"\s*(?P<key>[^\s!=,]+)\s+(?P<operator>in|notin)\s+\((?P<values>[^)]*)\)\s*")
_EQUALITY = re.compile(r"\s*(?P<key>[^\s!=,]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s,]*)\s*")
_PRESENCE = re.compile(r"\s*(?P<absent>!?)\s*(?P<key>[^\s!=,]+)\s*")
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_DECIMAL = {"m": "1e-3", "": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15"}
_UNITS = {
    **{name: Decimal(amount) for name, amount in _BINARY.items()},
    **{name: Decimal(amount) for name, amount in _DECIMAL.items()},
}
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([KMGTPkm]?i?)")
FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "status.phase",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.uid",
    "reason",
    "type",
)
"""Fields by which objects can be selected."""


def read_quantity(text: str | float) -> Decimal:
    """Return the amount of a quantity, such as `85Gi`."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None or match[2] not in _UNITS:
        rule = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        raise ApiError(400, "BadRequest", f"{rule}, got {text}")
    return Decimal(match[1]) * _UNITS[match[2]]


def matches_labels(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels fit a selector of an object, with `matchLabels` and `matchExpressions`."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        matches_expression(expression, labels) for expression in selector.get("matchExpressions", ())
    )


def matches_expression(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether labels fit an expression of a key, an operator and values."""
    key, operator, values = expression["key"], expression["operator"], expression.get("values", ())
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator in ("Exists", "DoesNotExist"):
        return (key in labels) is (operator == "Exists")
    numbers = [int(each) for each in (labels.get(key, ""), *values) if each.isdecimal()]
    if len(numbers) < 2 or operator not in ("Gt", "Lt"):  # noqa: PLR2004 - one of the label, and one to compare it with
        return False
    return numbers[0] > numbers[1] if operator == "Gt" else numbers[0] < numbers[1]


def parse_label_selector(text: str) -> Mapping[str, Any]:
    """Return the selector of a query, such as `a=b,c in (d, e),!f`."""
    expressions, at = [], 0
    while at < len(text):
        if match := _SET.match(text, at):
            operator = "In" if match["operator"] == "in" else "NotIn"
            values = [value.strip() for value in match["values"].split(",")]
            expressions.append({"key": match["key"], "operator": operator, "values": values})
        elif match := _EQUALITY.match(text, at):
            operator = "NotIn" if match["operator"] == "!=" else "In"
            expressions.append({"key": match["key"], "operator": operator, "values": [match["value"]]})
        elif match := _PRESENCE.match(text, at):
            expressions.append({"key": match["key"], "operator": "DoesNotExist" if match["absent"] else "Exists"})
        if match is None or text[match.end() : match.end() + 1] not in ("", ","):
            raise ApiError(400, "BadRequest", f'unable to parse requirement: found "{text}"')
        at = match.end() + 1
    return {"matchExpressions": expressions}


def parse_field_selector(text: str) -> Sequence[tuple[str, bool, str]]:
    """Return field, whether it has to be equal, and value, of each part of a query such as `status.phase!=Running`."""
    parts = []
    for part in filter(None, text.split(",")):
        field, operator, value = part.partition("!=") if "!=" in part else part.partition("=")
        if field not in FIELDS:
            raise ApiError(400, "BadRequest", f"field label not supported: {field}")
        parts.append((field, operator == "=", value.removeprefix("=")))
    return parts


def matches_fields(parts: Sequence[tuple[str, bool, str]], manifest: Manifest) -> bool:
    """Return whether an object has the fields of a query."""
    for field, is_equal, value in parts:
        found: Any = manifest
        for step in field.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        if ((found or "") == value) is not is_equal:
            return False
    return True
