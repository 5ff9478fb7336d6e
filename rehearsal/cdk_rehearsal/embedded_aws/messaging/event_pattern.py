"""Matches events against patterns of EventBridge rules (EventBridge User Guide, "event patterns")."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from cdk_rehearsal.errors import AssemblyError

_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "prefix": lambda value, wanted: value.startswith(wanted),
    "suffix": lambda value, wanted: value.endswith(wanted),
    "wildcard": lambda value, wanted: re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), value) is not None,
}
_PLAIN = (str, int, float, bool, type(None))


def require_pattern(pattern: Any, path: str = "EventPattern") -> None:
    """
    Make sure that a pattern is one, and can be matched here.

    Args:
        pattern: The pattern, or a part of it.
        path: Where the part is in the template, for the error.

    Raises:
        AssemblyError: It is not, or it uses what is not implemented.
    """
    if not isinstance(pattern, Mapping) or not pattern:
        raise AssemblyError(f"{path} must be an object with keys, got {pattern!r}; name what must match")
    for key, part in pattern.items():
        if key.startswith("$"):
            raise AssemblyError(f"{path} must not use {key} in the rehearsal; it matches lists, {_listing()}")
        if not isinstance(part, list):
            require_pattern(part, f"{path}.{key}")
            continue
        if not part:
            raise AssemblyError(f"{path}.{key} must list at least one value, got []; an empty list matches nothing")
        for wanted in part:
            _require_value(wanted, f"{path}.{key}")


def is_match(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Tell whether an event has every field of a pattern with one of its values."""
    for key, part in pattern.items():
        if key not in event:
            return False
        value = event[key]
        if isinstance(part, Mapping):
            if not isinstance(value, Mapping) or not is_match(part, value):
                return False
        elif not any(_fits(wanted, found) for wanted in part for found in _listed(value)):
            return False
    return True


def _require_value(wanted: Any, path: str) -> None:
    if isinstance(wanted, _PLAIN):
        return
    is_operator = isinstance(wanted, Mapping) and len(wanted) == 1
    name, value = next(iter(wanted.items())) if is_operator else (str(wanted), None)
    if name not in _OPERATORS or not isinstance(value, str):
        raise AssemblyError(f"{path} must use plain values, {_listing()} in the rehearsal, got {wanted!r}")


def _fits(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping):
        name, value = next(iter(wanted.items()))
        return isinstance(found, str) and _OPERATORS[name](found, value)
    return type(wanted) is type(found) and bool(wanted == found)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _listing() -> str:
    return " and ".join(sorted(_OPERATORS))
