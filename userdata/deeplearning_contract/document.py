"""Reads fields of foreign JSON, so that every wrong shape becomes the same error."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from deeplearning_contract.errors import ContractError

T = TypeVar("T")


def parse_object(text: str, what: str) -> dict[str, Any]:
    """
    Parse a JSON object.

    Args:
        text: The JSON text.
        what: What the text is, for the error.

    Raises:
        ContractError: The text is not JSON, or not an object.
    """
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(f"{what} must be JSON, got {text[:80]!r}: {error}") from error
    if not isinstance(value, dict):
        raise ContractError(f"{what} must be a JSON object, got {text[:80]!r}")
    return value


def field(document: Mapping[str, Any], key: str, kind: type[T], what: str) -> T:
    """
    Take a required field of one type.

    Raises:
        ContractError: The field is absent or of another type.
    """
    value = document.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ContractError(f"{what}.{key} must be of type {kind.__name__}, got {value!r}")
    return value


def text_list(document: Mapping[str, Any], key: str, what: str) -> tuple[str, ...]:
    """
    Take a required list of strings.

    Raises:
        ContractError: The field is absent, not a list, or holds anything but strings.
    """
    values = field(document, key, list, what)
    if not all(isinstance(value, str) for value in values):
        raise ContractError(f"{what}.{key} must be a list of strings, got {values!r}")
    return tuple(values)
