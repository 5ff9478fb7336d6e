"""Reader of foreign JSON, with one error for every malformed document."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_EXCERPT = 80


class ContractError(ValueError):
    """Document or message that does not follow the contract."""


def excerpt(value: Any) -> str:
    """Return the start of a value's `repr` for an error: foreign values may be of any size."""
    text = repr(value[:_EXCERPT] if isinstance(value, str) else value)
    return text if len(text) <= 2 * _EXCERPT else f"{text[: 2 * _EXCERPT]}..."


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Parse a JSON object; a ContractError names the text as `what`."""
    if not isinstance(text, str):  # DynamoDB and queues return text; other sources may not.
        raise ContractError(f"{what} must be JSON text, got {excerpt(text)}")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{what} must be JSON, got {excerpt(text)}: {error}") from error
    if not isinstance(value, dict):
        raise ContractError(f"{what} must be a JSON object, got {excerpt(text)}")
    return value


def parse_last_line(output: str, what: str) -> dict[str, Any]:
    """Parse the last line of a remote shell's output that starts an object: start-up files may print other lines."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        said = output.strip().splitlines()[-1:]
        raise ContractError(f"the output must contain {what}, got {excerpt(said[0]) if said else 'nothing'}")
    return parse_object(lines[-1], what)


def parse_record(kind: type[T], text: str, what: str) -> T:
    """Parse JSON text and read the dataclass from it, as `parse_object` and `read_record` do."""
    return read_record(kind, parse_object(text, what), what)


def read_record(kind: type[T], document: Any, what: str) -> T:
    """
    Read a dataclass from a JSON object; only a field with a default may be absent.

    Field types: str, int, float, bool, Any, enumerations, literals, dataclasses, and `X | None`, `tuple[X, ...]` and
    `Mapping[str, X]` of them. Unknown keys are ignored, so that a later version may add some.

    Raises:
        ContractError: A field is absent, or of another type; the text names it by its path, such as `state.revision`.
    """
    check_type(document, dict, what)
    values = {}
    for name, hint, is_optional in _list_fields(kind):  # type: ignore[arg-type] # a class has a hash
        if name in document or not is_optional:
            values[name] = _read(hint, document.get(name), f"{what}.{name}")
    return kind(**values)


def field(document: Mapping[str, Any], key: str, kind: type[T], what: str) -> T:
    """Return a required field of one type; ContractError where it is absent or of another type."""
    return check_type(document.get(key), kind, f"{what}.{key}")


def check_type(value: Any, kind: type[T], what: str) -> T:
    """Return a value of the type; ContractError for another one. A boolean is no number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ContractError(f"{what} must be of type {kind.__name__}, got {excerpt(value)}")
    return value


@cache
def _list_fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    return tuple(
        (each.name, hints[each.name], not (each.default is MISSING and each.default_factory is MISSING))
        for each in fields(kind)
    )


def _read(kind: Any, value: Any, what: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if type(None) in parts:
        return None if value is None else _read(parts[0], value, what)
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return _read_choice(value, {each: each for each in parts} or {each.value: each for each in kind}, what)
    if origin is tuple:
        return tuple(_read(parts[0], entry, what) for entry in check_type(value, list, what))
    if origin is not None:
        return {name: _read(parts[1], entry, f"{what}.{name}") for name, entry in check_type(value, dict, what).items()}
    if is_dataclass(kind):
        return read_record(kind, value, what)  # type: ignore[arg-type] # it is a class, not an instance
    is_whole = kind is float and isinstance(value, int) and not isinstance(value, bool)
    return value if kind is Any or is_whole else check_type(value, kind, what)


def _read_choice(value: Any, choices: Mapping[str, Any], what: str) -> Any:
    if not isinstance(value, str) or value not in choices:
        raise ContractError(f"{what} must be one of {list(choices)}, got {excerpt(value)}")
    return choices[value]
