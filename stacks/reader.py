"""
Reader of the props of `TrainingCluster` in the context, by their annotations.

A key is the Python name with dots, `workers.instance_type`; an object may replace a part of the tree, `workers`. A
value is text from the command line, or a JSON value. A value that no reader of the annotated type accepts is passed on
unchanged, so that the prop's own check refuses it, with the same message as in Python.
"""

import difflib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from aws_cdk import Duration, RemovalPolicy, Size
from constructs import Construct

from deeplearning_cdk import TrainingCluster
from deeplearning_cdk.props.check import find_choices, show_value
from stacks.shorthands import IMPORTS, SHORTHANDS, place_error

_UNITS: Mapping[str, Callable[[int], Duration | Size]] = {
    "s": Duration.seconds,
    "m": Duration.minutes,
    "h": Duration.hours,
    "d": Duration.days,
    "MiB": Size.mebibytes,
    "GiB": Size.gibibytes,
    "TiB": Size.tebibytes,
}
_QUANTITY = re.compile(r"([0-9]{1,9})\s*([A-Za-z]*)")
_EXAMPLES = {Duration: "90m, 48h or 7d", Size: "300GiB or 128MiB"}


def list_keys(kind: type[Construct] = TrainingCluster) -> list[str]:
    """Return every key of the context that is a prop of a cluster's construct."""
    return [key for key, _ in list_hints(kind)]


def list_hints(kind: type[Construct] = TrainingCluster) -> Iterator[tuple[str, Any]]:
    """Yield every key of a cluster's construct with its annotation."""
    return _list_fields("", _cluster_hints(kind))


def read_props(scope: Construct, context: Mapping[str, Any], kind: type[Construct] = TrainingCluster) -> dict[str, Any]:
    """
    Return the props of a cluster's construct from a context.

    Args:
        scope: The stack, in which ids and ARNs become constructs by the CDK's imports.
        context: Keys of a cluster and their values.
        kind: The construct. Default: `TrainingCluster`.

    Raises:
        ValueError: A value cannot be read, or a prop refuses it.
    """
    hints = _cluster_hints(kind)
    return {name: _read(scope, name, value, hints[name]) for name, value in _nest(context).items()}


def parse_json(key: str, value: Any) -> Any:
    """
    Return the parsed document of a text that is a JSON object or list, and any other value unchanged.

    Raises:
        ValueError: The text is not JSON.
    """
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"{key} must be JSON, got {show_value(value)} ({error}); quote it for the shell") from error


def _check_names(key: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """
    Check the names in an object.

    Raises:
        ValueError: A name is unknown; the message suggests the nearest.
    """
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(str(name), known, n=1, cutoff=0)[0]
            raise ValueError(
                f"{key} must have the names {', '.join(known)}, got {show_value(name)}; did you mean {nearest}?"
            )


def _cluster_hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind.__init__, include_extras=True)
    parameters = inspect.signature(kind.__init__).parameters.values()
    return {each.name: hints[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}


def _list_fields(prefix: str, hints: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, hint in hints.items():
        yield prefix + name, hint
        for kind in _kinds(hint):
            if is_dataclass(kind) and kind not in SHORTHANDS:
                yield from _list_fields(f"{prefix}{name}.", get_type_hints(kind, include_extras=True))


def _kinds(hint: Any) -> list[Any]:
    return [kind for kind, _ in find_choices(hint)]


def _nest(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of dotted keys; an object beside them is merged with them."""
    tree: dict[str, Any] = {}
    for key in sorted(context, key=lambda key: key.count(".")):
        *path, last = key.split(".")
        branch = tree
        for part in path:
            known = branch.setdefault(part, {})
            if not isinstance(known, dict):
                raise ValueError(  # noqa: TRY004 - the user's key is wrong
                    f"{key} must stand beside no other value of {part}, got both; leave one out"
                )
            branch = known
        value = parse_json(key, context[key])
        branch[last] = dict(value) if isinstance(value, dict) else value
    return tree


def _read(scope: Construct, key: str, value: Any, hint: Any) -> Any:
    value = parse_json(key, value)
    kinds = _kinds(hint)
    for kind in kinds:
        if kind in SHORTHANDS:
            return SHORTHANDS[kind](key, value)
        if kind in IMPORTS and (found := IMPORTS[kind](scope, key, value)) is not None:
            return found
        if isinstance(value, dict) and is_dataclass(kind):
            return _build(scope, key, value, kind)
        if get_origin(kind) in (Sequence, tuple):
            return _read_items(scope, key, value, get_args(kind)[0])
    return _read_plain(key, value, kinds)


def _build(scope: Construct, key: str, value: Mapping[str, Any], kind: Any) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    _check_names(key, value, [field.name for field in fields(kind)])
    needed = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
    if missing := [name for name in needed if name not in value]:
        raise ValueError(f"{key} must have {' and '.join(missing)}, got none; add it")
    read = {name: _read(scope, f"{key}.{name}", item, hints[name]) for name, item in value.items()}
    try:
        return kind(**read)
    except ValueError as error:
        raise place_error(key, error, dict(zip(value, value, strict=True))) from error


def _read_items(scope: Construct, key: str, value: Any, hint: Any) -> Any:
    if isinstance(value, str):
        value = [item.strip() for item in value.split(",")]
    if not isinstance(value, list):
        return value
    return tuple(_read(scope, f"{key}[{index}]", item, hint) for index, item in enumerate(value))


def _read_plain(key: str, value: Any, kinds: Sequence[Any]) -> Any:
    if not isinstance(value, str):
        return value
    if int in kinds and re.fullmatch(r"-?[0-9]{1,9}", value):
        return int(value)
    if float in kinds and re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,6})?", value):
        return float(value)
    if bool in kinds:
        return {"true": True, "false": False}.get(value.lower(), value)
    if RemovalPolicy in kinds:
        return getattr(RemovalPolicy, value.upper().replace("-", "_"), value)
    return _read_quantity(key, value, kinds)


def _read_quantity(key: str, value: str, kinds: Sequence[Any]) -> Any:
    wanted = next((kind for kind in kinds if kind in _EXAMPLES), None)
    found = _QUANTITY.fullmatch(value)
    if wanted is None or found is None:
        return value
    make = _UNITS.get(found[2])
    quantity = make(int(found[1])) if make else None
    if not isinstance(quantity, wanted):
        raise ValueError(  # noqa: TRY004 - the user's text is wrong
            f"{key} must have a unit, got {show_value(value)}; write e.g. {_EXAMPLES[wanted]}"
        )
    return quantity
