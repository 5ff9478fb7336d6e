"""Reads the TOML of a case file into a `Case`; what is missing, of another type or read by nobody is an error."""

from collections.abc import Mapping
from dataclasses import field, is_dataclass, make_dataclass
from typing import Any, Literal, get_args, get_origin

from cattrs import BaseValidationError, Converter, ForbiddenExtraKeysError
from cattrs.cols import homogenous_tuple_structure_factory
from cattrs.errors import AttributeValidationNote, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, override

from deeplearning_rehearsal.cases.format.actions import ACTIONS, SecondsOrNever
from deeplearning_rehearsal.cases.format.case import Case, Injection
from deeplearning_rehearsal.cases.format.triggers import TRIGGERS, Target, Trigger, parse_target, parse_trigger

_WORDS: Mapping[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}
_KEYS = {"injections": "inject", "objects": "object", "buckets": "bucket"}
"""Attribute of a case -> its key in the file, where that is another."""


def read_words(values: Mapping[str, Any]) -> Case:
    """
    Return the case that a parsed file describes, without a name.

    Raises ValueError, whose message begins with the key, if a key is missing, unknown or of another type.
    """
    try:
        return _READER.structure(values, Case)
    except BaseValidationError as error:
        raise ValueError(_explain(error, "").removeprefix(".")) from error


def _explain(error: BaseException, key: str, kind: Any = None) -> str:
    """Return the key of the first of cattrs' errors, and what is wrong with it in the words of case files."""
    if isinstance(error, BaseValidationError):
        first = error.exceptions[0]
        for note in getattr(first, "__notes__", ()):
            if isinstance(note, AttributeValidationNote):
                return _explain(first, f"{key}.{_KEYS.get(note.name, note.name)}", note.type)
            if isinstance(note, IterableValidationNote):
                return _explain(first, f"{key}[{note.index}]", note.type)
        return _explain(first, key)
    if isinstance(error, ForbiddenExtraKeysError):
        known = sorted(_KEYS.get(name, name) for name in error.cl.__annotations__ if (error.cl, name) != (Case, "name"))
        rule = f"must be left out, nothing here reads it; the keys are {', '.join(known)}"
        return f"{key}.{min(error.extra_fields)} {rule}"
    if isinstance(error, KeyError):
        return f"{key} must be given, it is {_WORDS.get(kind, 'a text')}"
    return f"{key} {error}" if str(error).startswith("must ") else f"{key}.{error}"


def _is(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _require(value: Any, kind: Any) -> None:
    if not _is(value, kind):
        raise ValueError(f"must be {_WORDS[kind]}, got {value!r}")


def _read_plain(value: Any, kind: Any) -> Any:
    _require(value, kind)
    # A whole number is a number as well, and the reader wants to count on a float.
    return float(value) if kind is float else value


def _read_list(value: Any, kind: Any) -> Any:
    entry = get_args(kind)[0]
    _require(value, list)
    for item in value:
        if not _is(item, entry):
            raise ValueError(f"must be a list whose entries are each {_WORDS[entry]}, got {item!r}")
    return get_origin(kind)(value)


def _read_mapping(value: Any, kind: Any) -> dict[str, Any]:
    _require(value, dict)
    for name, item in value.items():
        if get_args(kind)[1] is str and not isinstance(item, str):
            raise ValueError(f"must be a table whose entries are each a text, got {name} = {item!r}")
    return dict(value)


def _read_choice(value: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if choices == (True,):
        if value is not True:
            raise ValueError("must be true or left out: that it does not hold is never promised")
    elif value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}, got {value!r}")
    return value


def _read_seconds_or_never(value: Any, _: Any) -> float | None:
    if value == "never":
        return None
    seconds: float = _read_plain(value, float)
    if seconds < 0:
        raise ValueError(f"must be at least 0, or 'never', got {seconds:g}")
    return seconds


def _read_trigger(text: Any, _: Any) -> Trigger:
    _require(text, str)
    trigger = parse_trigger(text)
    if trigger is None:
        examples = [f'"{moment.example}"' for moment in TRIGGERS.values()]
        raise ValueError(f"must be like {', '.join(examples[:-1])} or {examples[-1]}, got {text!r}")
    return trigger


def _read_target(text: Any, _: Any) -> Target:
    _require(text, str)
    target = parse_target(text)
    if target is None:
        raise ValueError(f"must be master, or worker 2 for the second that was launched, got {text!r}")
    return target


def _make_table(do: str) -> Any:
    """Return the dataclass of an injection's table: moment and target as its action needs, and the action's options."""
    action = ACTIONS[do]
    needed = [(name, option.kind) for name, option in action.options.items() if option.is_required]
    rest = [
        (name, option.kind, field(default=option.default))
        for name, option in action.options.items()
        if not option.is_required
    ]
    target = [("target", Target)] if action.has_target else []
    return make_dataclass(do, [("do", str), ("when", Trigger), *target, *needed, *rest])


_TABLES = {do: _make_table(do) for do in ACTIONS}


def _read_injection(values: Any, _: Any) -> Injection:
    _require(values, dict)
    do = values.get("do")
    if do not in ACTIONS:
        raise ValueError(f"do must be one of {', '.join(ACTIONS)}, got {do!r}")
    table = _READER.structure(values, _TABLES[do])
    options = {name: getattr(table, name) for name in ACTIONS[do].options}
    return Injection(table.when, do, getattr(table, "target", None), options)


def _make_reader() -> Converter:
    reader = Converter(forbid_extra_keys=True)
    reader.register_structure_hook_factory(is_dataclass, _make_table_reader)
    reader.register_structure_hook_factory(lambda kind: _has_origin(kind, tuple), _make_tables_reader)
    reader.register_structure_hook_func(
        lambda kind: _has_origin(kind, tuple, frozenset) and get_args(kind)[0] in _WORDS, _read_list
    )
    reader.register_structure_hook_func(lambda kind: _has_origin(kind, Mapping), _read_mapping)
    reader.register_structure_hook_func(lambda kind: _has_origin(kind, Literal), _read_choice)
    reader.register_structure_hook_func(lambda kind: kind is SecondsOrNever, _read_seconds_or_never)
    for plain in (str, bool, int, float):
        reader.register_structure_hook(plain, _read_plain)
    reader.register_structure_hook(Trigger, _read_trigger)
    reader.register_structure_hook(Target, _read_target)
    reader.register_structure_hook(Injection, _read_injection)
    return reader


def _has_origin(kind: Any, *origins: Any) -> bool:
    return get_origin(kind) in origins


def _make_table_reader(kind: Any, reader: Converter) -> Any:
    special: dict[str, Any] = {name: override(rename=key) for name, key in _KEYS.items()} if kind is Case else {}
    if kind is Case:
        special["name"] = override(omit=True)
    read = make_dict_structure_fn(kind, reader, **special)

    def read_table(values: Any, _: Any) -> Any:
        _require(values, dict)
        return read(values, kind)

    return read_table


def _make_tables_reader(kind: Any, reader: Converter) -> Any:
    read = homogenous_tuple_structure_factory(kind, reader)

    def read_tables(values: Any, _: Any) -> Any:
        _require(values, list)
        return read(values, kind)

    return read_tables


_READER = _make_reader()
