"""Reads fields of foreign JSON, so that every wrong shape becomes the same error."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_EXCERPT = 80


def excerpt(value: Any) -> str:
    """Return the beginning of a value's `repr`, for an error: what is foreign may be of any size."""
    text = repr(value[:_EXCERPT] if isinstance(value, str) else value)
    return text if len(text) <= 2 * _EXCERPT else f"{text[: 2 * _EXCERPT]}..."


def parse_object(text: str, what: str) -> dict[str, Any]:
    """
    Parse a JSON object.

    Args:
        text: The JSON text.
        what: What the text is, for the error.

    Raises:
        ContractError: The text is not JSON, or not an object.
    """
    if not isinstance(text, str):  # What DynamoDB or a queue delivers is only said to be text.
        raise ContractError(f"{what} must be JSON text, got {excerpt(text)}")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{what} must be JSON, got {excerpt(text)}: {error}") from error
    if not isinstance(value, dict):
        raise ContractError(f"{what} must be a JSON object, got {excerpt(text)}")
    return value


def field(document: Mapping[str, Any], key: str, kind: type[T], what: str) -> T:
    """
    Take a required field of one type.

    Raises:
        ContractError: The field is absent or of another type.
    """
    value = document.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ContractError(f"{what}.{key} must be of type {kind.__name__}, got {excerpt(value)}")
    return value


def text_list(document: Mapping[str, Any], key: str, what: str) -> tuple[str, ...]:
    """
    Take a required list of strings.

    Raises:
        ContractError: The field is absent, not a list, or holds anything but strings.
    """
    values = field(document, key, list, what)
    if not all(isinstance(value, str) for value in values):
        raise ContractError(f"{what}.{key} must be a list of strings, got {excerpt(values)}")
    return tuple(values)


def object_list(document: Mapping[str, Any], key: str, what: str) -> tuple[dict[str, Any], ...]:
    """
    Take a required list of objects.

    Raises:
        ContractError: The field is absent, not a list, or holds anything but objects.
    """
    values = field(document, key, list, what)
    if not all(isinstance(value, dict) for value in values):
        raise ContractError(f"{what}.{key} must be a list of objects, got {excerpt(values)}")
    return tuple(values)


class ContractError(ValueError):
    """A document or message does not have the shape that the contract gives it."""
