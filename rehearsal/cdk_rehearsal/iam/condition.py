"""
The condition operators of IAM policies.

IAM User Guide, "IAM JSON policy elements: Condition operators" and "Multivalued context keys". An operator that is not
known is an error: to pass over a condition would grant what it holds back.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, Literal

from cdk_rehearsal.errors import PolicyError
from cdk_rehearsal.iam.pattern import ArnPattern, Context, Pattern

Quantifier = Literal["", "ForAnyValue", "ForAllValues"]
Comparison = Callable[[str, str, Context, bool], bool]
"""Takes the policy's value, the request's, the context and whether variables are replaced."""


@lru_cache(maxsize=1024)
def _read_pattern(text: str, has_variables: bool, has_wildcards: bool, ignores_case: bool) -> Pattern:  # noqa: FBT001
    return Pattern(text, has_variables=has_variables, has_wildcards=has_wildcards, ignores_case=ignores_case)


@lru_cache(maxsize=1024)
def _read_arn(text: str, has_variables: bool) -> ArnPattern:  # noqa: FBT001
    return ArnPattern(text, has_variables=has_variables)


def _compare_text(*, has_wildcards: bool, ignores_case: bool = False) -> Comparison:
    def compare(policy: str, value: str, context: Context, has_variables: bool) -> bool:  # noqa: FBT001
        return _read_pattern(policy, has_variables, has_wildcards, ignores_case).is_match(value, context)

    return compare


def _compare_arn(policy: str, value: str, context: Context, has_variables: bool) -> bool:  # noqa: FBT001
    return _read_arn(policy, has_variables).is_match(value, context)


def _compare_order(read: Callable[[str], float], holds: Callable[[float, float], bool]) -> Comparison:
    def compare(policy: str, value: str, _context: Context, _has_variables: bool) -> bool:  # noqa: FBT001
        try:
            found = read(value)
        except ValueError:
            return False
        return holds(found, read(policy))

    return compare


def _compare_address(policy: str, value: str, _context: Context, _has_variables: bool) -> bool:  # noqa: FBT001
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return address in ipaddress.ip_network(policy, strict=False)


def _read_date(text: str) -> float:
    if text.replace(".", "", 1).isdigit():
        return float(text)
    date = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()


_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "Equals": lambda found, wanted: found == wanted,
    "LessThan": lambda found, wanted: found < wanted,
    "LessThanEquals": lambda found, wanted: found <= wanted,
    "GreaterThan": lambda found, wanted: found > wanted,
    "GreaterThanEquals": lambda found, wanted: found >= wanted,
}
_COMPARISONS: Mapping[str, Comparison] = {
    "StringEquals": _compare_text(has_wildcards=False),
    "StringEqualsIgnoreCase": _compare_text(has_wildcards=False, ignores_case=True),
    "StringLike": _compare_text(has_wildcards=True),
    "ArnEquals": _compare_arn,
    "ArnLike": _compare_arn,
    "Bool": _compare_text(has_wildcards=False, ignores_case=True),
    "BinaryEquals": _compare_text(has_wildcards=False),
    "IpAddress": _compare_address,
    **{f"Numeric{name}": _compare_order(float, holds) for name, holds in _ORDERS.items()},
    **{f"Date{name}": _compare_order(_read_date, holds) for name, holds in _ORDERS.items()},
}
_NEGATIONS: Mapping[str, str] = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "NumericNotEquals": "NumericEquals",
    "DateNotEquals": "DateEquals",
    "NotIpAddress": "IpAddress",
}
_NULL = "Null"


@dataclass(frozen=True)
class Condition:
    """One operator, under the policy's name, with one key in lower case and the policy's values."""

    operator: str
    key: str
    values: tuple[str, ...]
    _name: str
    _quantifier: Quantifier
    _if_exists: bool
    _has_variables: bool

    def is_met(self, context: Context) -> bool:
        """Return whether a request meets it; raise PolicyError for several values without a quantifier."""
        found = context.get(self.key, ())
        if self._name == _NULL:
            return any((value.lower() == "true") == (not found) for value in self.values)
        if not found and self._if_exists:
            return True
        if self._quantifier == "ForAllValues":
            return all(self._fits(value, context) for value in found)
        if self._quantifier == "ForAnyValue":
            return any(self._fits(value, context) for value in found)
        if len(found) > 1:
            raise PolicyError(
                f"{self.operator} must be ForAnyValue: or ForAllValues:{self.operator} with {self.key}, which has "
                f"several values, got {', '.join(found)}; add the one that is meant"
            )
        return self._fits(found[0], context) if found else self._name in _NEGATIONS

    def _fits(self, value: str, context: Context) -> bool:
        compare = _COMPARISONS[_NEGATIONS.get(self._name, self._name)]
        is_equal = any(compare(wanted, value, context, self._has_variables) for wanted in self.values)
        return is_equal != (self._name in _NEGATIONS)


def read_conditions(block: Any, *, has_variables: bool) -> tuple[Condition, ...]:
    """Read the `Condition` element of a statement; raise PolicyError for an unknown operator or a wrong value."""
    if not isinstance(block, Mapping):
        raise PolicyError(f"Condition must be an object, got {block!r}; write operator, key and values")
    return tuple(
        _read_condition(operator, key, values, has_variables=has_variables)
        for operator, keys in block.items()
        for key, values in keys.items()
    )


def _read_condition(operator: str, key: str, values: Any, *, has_variables: bool) -> Condition:
    prefix, separator, rest = operator.partition(":")
    quantifier: Quantifier = prefix if separator else ""  # type: ignore[assignment]
    name = rest if separator else operator
    if_exists = name.endswith("IfExists")
    name = name.removesuffix("IfExists")
    is_known = name in _COMPARISONS or name in _NEGATIONS or (name == _NULL and not if_exists and not separator)
    if not is_known or quantifier not in {"", "ForAnyValue", "ForAllValues"}:
        raise PolicyError(f"condition operator must be one that IAM knows, got {operator!r}; the statement is unusable")
    listed = values if isinstance(values, Sequence) and not isinstance(values, str) else [values]
    texts = tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in listed)
    for text in texts:
        _require_value(name, text)
    return Condition(operator, key.lower(), texts, name, quantifier, if_exists, has_variables)


def _require_value(name: str, text: str) -> None:
    try:
        if name.startswith("Numeric"):
            float(text)
        elif name.startswith("Date"):
            _read_date(text)
        elif name in {"IpAddress", "NotIpAddress"}:
            ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise PolicyError(f"{name} must compare with a value of its kind, got {text!r}; correct the value") from error
