"""Words in which the API server refuses values, and its rules of names, labels, selectors and amounts."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.selectors import read_quantity

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_LABEL}(\\.{_LABEL})*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_KEY = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_KEY_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_KEY})?')"
)
MOST_LABEL, MOST_NAME = 63, 253
_MOST_ANNOTATIONS = 262_144
_KUBERNETES = "kubernetes.io/"
_OWN = ("cpu", "memory", "ephemeral-storage")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def invalid(field: str, value: Any, rule: str) -> str:
    """Return the words for a value that breaks a rule."""
    return f"{field}: Invalid value: {json.dumps(value)}: {rule}"


def require(field: str, rule: str = "") -> str:
    """Return the words for a value that is missing."""
    return f"{field}: Required value{': ' if rule else ''}{rule}"


def forbid(field: str, rule: str) -> str:
    """Return the words for a field that may not be set."""
    return f"{field}: Forbidden: {rule}"


def check_choice(field: str, value: Any, choices: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with a value that has to be one of some."""
    if value not in choices:
        yield f"{field}: Unsupported value: {json.dumps(value)}: supported values: {list_quoted(sorted(choices))}"


def list_quoted(names: Iterable[str]) -> str:
    """Return names in quotes, after one another."""
    return ", ".join(f'"{name}"' for name in names)


def check_least(field: str, value: Any, least: int = 0) -> Iterator[str]:
    """Yield what is wrong with a number that has a least value; none is right."""
    if value is not None and value < least:
        yield invalid(field, value, f"must be greater than or equal to {least}")


def check_most(field: str, items: Sequence[Any], most: int) -> Iterator[str]:
    """Yield that a list has too many items."""
    if len(items) > most:
        yield f"{field}: Too many: {len(items)}: must have at most {most} items"


def check_name(field: str, name: str, *, is_label: bool = False) -> Iterator[str]:
    """Yield what is wrong with a name of an object, or of a part of one, which is a label of DNS."""
    most = MOST_LABEL if is_label else MOST_NAME
    pattern, rule = (re.compile(_LABEL), _LABEL_RULE) if is_label else (_NAME, _NAME_RULE)
    if not name:
        yield require(field)
        return
    if len(name) > most:
        yield invalid(field, name, f"must be no more than {most} bytes")
    if not pattern.fullmatch(name):
        yield invalid(field, name, rule)


def check_key(field: str, key: str) -> Iterator[str]:
    """Yield what is wrong with the key of a label, an annotation or a taint."""
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        yield invalid(field, key, "prefix part must be non-empty")
    elif slash and not (_NAME.fullmatch(prefix) and len(prefix) <= MOST_NAME):
        yield invalid(field, key, f"prefix part {_NAME_RULE}")
    if not name:
        yield invalid(field, key, "name part must be non-empty")
    elif len(name) > MOST_LABEL:
        yield invalid(field, key, f"name part must be no more than {MOST_LABEL} bytes")
    if not re.fullmatch(_KEY, name):
        yield invalid(field, key, f"name part {_KEY_RULE}")


def check_value(field: str, value: str) -> Iterator[str]:
    """Yield what is wrong with the value of a label."""
    if len(value) > MOST_LABEL:
        yield invalid(field, value, f"must be no more than {MOST_LABEL} bytes")
    if not re.fullmatch(f"({_KEY})?", value):
        yield invalid(field, value, _VALUE_RULE)


def check_labels(field: str, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with labels."""
    for key, value in labels.items():
        yield from check_key(field, key)
        yield from check_value(field, value)


def check_annotations(field: str, annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with annotations."""
    for key in annotations:
        yield from check_key(field, key.lower())
    if sum(len(key) + len(value.encode()) for key, value in annotations.items()) > _MOST_ANNOTATIONS:
        yield f"{field}: Too long: may not be more than {_MOST_ANNOTATIONS} bytes"


def check_selector(field: str, selector: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a selector of labels."""
    yield from check_labels(f"{field}.matchLabels", selector.get("matchLabels", {}))
    for number, each in enumerate(selector.get("matchExpressions", ())):
        yield from check_expression(f"{field}.matchExpressions[{number}]", each, "label")


def check_expression(field: str, expression: Mapping[str, Any], kind: str) -> Iterator[str]:
    """
    Yield what is wrong with an expression of a selector.

    Args:
        field: Its path.
        expression: Key, operator and values.
        kind: `label`, or `node` for one of nodes, which may compare numbers.
    """
    operator, values = expression.get("operator"), expression.get("values", ())
    yield from check_key(f"{field}.key", expression.get("key", ""))
    if operator in ("In", "NotIn") and not values:
        yield require(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield forbid(f"{field}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif kind == "node" and operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield require(f"{field}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    elif operator not in _OPERATORS:
        named = "not a valid selector operator" if kind == "node" else "not a valid label selector operator"
        yield invalid(f"{field}.operator", operator, named)


def check_resources(field: str, resources: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the limits and requests of a container."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _check_amount(f"{field}.{kind}[{name}]", name, amount)
    for name, amount in requests.items():
        is_exact = not _is_shared(name)
        if name not in limits:
            if is_exact:
                yield require(f"{field}.limits", "Limit must be set for non overcommitable resources")
        elif is_exact and read_quantity(amount) != read_quantity(limits[name]):
            yield invalid(f"{field}.requests", str(amount), f"must be equal to {name} limit of {limits[name]}")
        elif read_quantity(amount) > read_quantity(limits[name]):
            words = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid(f"{field}.requests", str(amount), words)


def _is_shared(name: str) -> bool:
    """Return whether pods may get less of a resource than their limits."""
    is_own = "/" not in name or _KUBERNETES in name
    return is_own and not name.startswith("hugepages-")


def _check_amount(field: str, name: str, amount: Any) -> Iterator[str]:
    if "/" in name:
        yield from check_key(field, name)
        if name.startswith("requests."):
            yield invalid(field, name, "must be a standard resource for containers")
    elif name not in _OWN and not name.startswith("hugepages-"):
        yield invalid(field, name, "must be a standard resource for containers")
    number = read_quantity(amount)
    if number < 0:
        yield invalid(field, str(amount), "must be greater than or equal to 0")
    elif not _is_shared(name) and "/" in name and number != int(number):
        yield invalid(field, str(amount), "must be an integer")
