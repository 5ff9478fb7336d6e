"""Reads single values of the context: text from the command line, or what JSON has."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from deeplearning_cdk.props.check import show_value

Reader = Callable[[str, Any], Any]
Choice = TypeVar("Choice")
Built = TypeVar("Built")

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]")


class ContextError(ValueError):
    """A context key or its value is not one that this app knows."""


def read_text(key: str, value: Any) -> str:
    """
    Read a text that is not empty.

    Raises:
        ContextError: It is something else.
    """
    if not isinstance(value, str) or not value:
        raise ContextError(f"{key} must be a text, got {show_value(value)}; write -c {key}=…")
    return value


def read_number(key: str, value: Any) -> int:
    """
    Read a whole number that is not negative.

    Raises:
        ContextError: It is something else.
    """
    text = show_value(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,9}", text):
        raise ContextError(f"{key} must be a whole number from 0, got {show_value(value)}; write e.g. -c {key}=3")
    return int(text)


def read_flag(key: str, value: Any) -> bool:
    """
    Read true or false.

    Raises:
        ContextError: It is something else.
    """
    flag = {"true": True, "false": False}.get(show_value(value).strip("'").lower())
    if flag is None:
        raise ContextError(f"{key} must be true or false, got {show_value(value)}; write -c {key}=true")
    return flag


def read_choice(choices: Mapping[str, Choice]) -> Callable[[str, Any], Choice]:
    """Return a reader of one of several words."""

    def read(key: str, value: Any) -> Choice:
        if not isinstance(value, str) or value not in choices:
            raise ContextError(f"{key} must be one of {', '.join(choices)}, got {show_value(value)}; write one of them")
        return choices[value]

    return read


def read_list(key: str, value: Any) -> list[str]:
    """
    Read a list of texts, or texts with commas between them.

    Raises:
        ContextError: It is something else, or empty.
    """
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not items or not all(isinstance(item, str) and item.strip() for item in items):
        raise ContextError(f"{key} must be a list, got {show_value(value)}; write -c {key}=first,second")
    return [item.strip() for item in items]


def read_pairs(key: str, value: Any) -> dict[str, str]:
    """
    Read an object of texts, or `name=value` with commas between them.

    Raises:
        ContextError: It is something else.
    """
    if isinstance(value, str):
        parts = [item.partition("=") for item in read_list(key, value)]
        if not all(name and sign and text for name, sign, text in parts):
            raise ContextError(
                f"{key} must be name=value pairs, got {show_value(value)}; write -c {key}=name=value,name=value"
            )
        return {name: text for name, _, text in parts}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ContextError(
            f"{key} must be name=value pairs, got {show_value(value)}; write -c {key}=name=value,name=value"
        )
    return value


def read_object(key: str, value: Any) -> dict[str, Any]:
    """
    Read an object, as JSON's or as its text.

    Raises:
        ContextError: It is something else.
    """
    try:
        document = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ContextError(
            f"{key} must be a JSON object, got {show_value(value)} ({error}); quote it for the shell"
        ) from error
    if not isinstance(document, dict):
        raise ContextError(f"{key} must be a JSON object, got {show_value(value)}; write it between braces")
    return document


def read_regions(key: str, value: Any) -> list[str]:
    """
    Read a list of AWS regions.

    Raises:
        ContextError: One is not a region's name, or stands there twice.
    """
    regions = read_list(key, value)
    wrong = [region for region in regions if not _REGION.fullmatch(region)]
    if wrong:
        raise ContextError(
            f"{key} must be AWS regions, got {show_value(wrong[0])}; write e.g. -c {key}=us-east-1,eu-west-1"
        )
    if len(set(regions)) < len(regions):
        raise ContextError(f"{key} must name each region once, got {','.join(regions)}; leave the second one out")
    return regions


def build(key: str, make: Callable[..., Built], arguments: Mapping[str, Any]) -> Built:
    """
    Call with named arguments that a user wrote.

    Raises:
        ContextError: One is missing or not known, or the callee refuses it.
    """
    try:
        return make(**arguments)
    except TypeError as error:
        raise ContextError(
            f"{key} must have the right names, got {sorted(arguments)} ({error}); see the README"
        ) from error
    except ValueError as error:
        raise ContextError(f"{key}: {error}") from error
