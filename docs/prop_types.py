"""
Extension of griffe, which reads the docstrings for the site: it shows the types of props without their rules.

`WorkerCount`, an `Annotated[int, rule, …]`, becomes `int`, other names of types become what they stand for, and a
default that is the name of a constant becomes its value. A parameter whose docstring describes the default as behaviour
has no second one, which would be `None` in most cases.
"""

from dataclasses import fields, replace
from typing import Any

import griffe  # type: ignore[import-not-found]


class PropTypes(griffe.Extension):  # type: ignore[misc]
    """Replaces the names of types and constants in signatures of a package by plain types and values."""

    def on_package(self, *, pkg: Any, loader: Any, **_: Any) -> None:
        """Replace the annotations and defaults of all fields, parameters and results of a package."""
        _simplify_members(pkg, loader.modules_collection)


def _simplify_members(owner: Any, modules: Any) -> None:
    for member in owner.members.values():
        if member.is_alias:
            continue
        if member.is_attribute:
            member.annotation = _simplify(member.annotation, modules)
            member.value = _find_value(member.value, modules) if owner.is_class else member.value
        elif member.is_function:
            _simplify_function(member, modules)
        else:
            _simplify_members(member, modules)
        if member.docstring is not None:
            _drop_described_defaults(member.docstring)


def _simplify_function(function: Any, modules: Any) -> None:
    function.returns = _simplify(function.returns, modules)
    for parameter in function.parameters:
        parameter.annotation = _simplify(parameter.annotation, modules)
        parameter.default = _find_value(parameter.default, modules)


def _drop_described_defaults(docstring: Any) -> None:
    sections = [section for section in docstring.parsed if section.kind is griffe.DocstringSectionKind.parameters]
    for parameter in (each for section in sections for each in section.value):
        if "Default:" in parameter.description:
            parameter.default = None


def _simplify(annotation: Any, modules: Any) -> Any:
    """Return an annotation without names of types, rules and repetitions."""
    match annotation:
        case griffe.ExprName():
            return _simplify_name(annotation, modules)
        case griffe.ExprSubscript(left=griffe.ExprName(name="Annotated"), slice=griffe.ExprTuple(elements=elements)):
            return _simplify(elements[0], modules)
        case griffe.ExprBinOp(operator="|"):
            return _unite(annotation, modules)
        case griffe.Expr() if str(annotation.canonical_path) != "typing.Literal":
            parts = {each.name: getattr(annotation, each.name) for each in fields(annotation)}
            return replace(annotation, **{name: _simplify(part, modules) for name, part in parts.items()})
        case list():
            return [_simplify(part, modules) for part in annotation]
    return annotation


def _simplify_name(name: Any, modules: Any) -> Any:
    """Return the type that a module gives the name, or the name where it is that of a class."""
    value = _look_up(name, modules)
    return _simplify(value, modules) if isinstance(value, griffe.ExprSubscript | griffe.ExprBinOp) else name


def _find_value(default: Any, modules: Any) -> Any:
    """Return the text or number of a constant, and other defaults as they are."""
    value = _look_up(default, modules) if isinstance(default, griffe.ExprName) else None
    return value if isinstance(value, str) else default


def _look_up(name: Any, modules: Any) -> Any:
    """Return the value that a module gives a name; None for a class, and for a name of another package."""
    try:
        found = modules[name.canonical_path]
        found = found.final_target if found.is_alias else found
    except (KeyError, griffe.AliasResolutionError):
        return None
    return found.value if found.is_attribute else None


def _unite(union: Any, modules: Any) -> Any:
    """Return a union whose members differ; the empty text is one of `str`."""
    kinds = {str(kind): kind for kind in _list_members(union, modules)}
    if "str" in kinds:
        kinds.pop("Literal['']", kinds.pop('Literal[""]', None))
    first, *others = kinds.values()
    for other in others:
        first = griffe.ExprBinOp(first, "|", other)
    return first


def _list_members(union: Any, modules: Any) -> list[Any]:
    """Return the members of a union, those of unions in it included."""
    if isinstance(union, griffe.ExprBinOp) and union.operator == "|":
        simplified = [_simplify(side, modules) for side in (union.left, union.right)]
        return [kind for side in simplified for kind in _list_members(side, modules)]
    return [union]
