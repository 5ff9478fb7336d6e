"""Mutants of a package: the changes that mutmut made, and whether a test found each."""

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ALIVE = (0, 33, None)
"""mutmut's exit statuses of a mutant for which no test fails, that no test reaches, and that was not tried."""
CONTEXT = 30
"""Characters around a change that name the mutant, with its function; numbers would change with every line of code."""


@dataclass(frozen=True)
class Mutant:
    """
    A change of a function.

    Attributes:
        function: Its dotted name.
        before: The lines that it changes.
        after: What stands in their place.
        exit_status: Of the tests; None as long as they have not run.
    """

    function: str
    before: str
    after: str
    exit_status: int | None

    @property
    def has_survived(self) -> bool:
        """Return whether no test failed."""
        return self.exit_status in ALIVE

    def __str__(self) -> str:
        same = _count_same(self.before, self.after)
        end = _count_same(self.before[same:][::-1], self.after[same:][::-1])
        old, new = (text[same : len(text) - end] for text in (self.before, self.after))
        rest = self.before[len(self.before) - end :]
        return f"{self.function}: {self.before[:same][-CONTEXT:]}[{old} -> {new}]{rest[:CONTEXT]}"


def _count_same(one: str, other: str) -> int:
    return next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def read_mutants(place: Path, module: str) -> list[Mutant]:
    """Return the mutants of a package that change more than words."""
    found = []
    for results in sorted((place / module.replace(".", "/")).glob("*.py.meta")):
        exit_statuses = json.loads(results.read_text())["exit_code_by_key"]
        functions = {function.name: function for function in _walk(ast.parse(results.with_suffix("").read_text()))}
        for key, exit_status in exit_statuses.items():
            dotted, _, name = key.rpartition(".")
            plain = name.partition("__mutmut_")[0]
            before, after = compare(functions[f"{plain}__mutmut_orig"], functions[name])
            if before != after:
                method = plain.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
                found.append(Mutant(f"{dotted.rpartition('.')[2]}.{method}", before, after, exit_status))
    return found


def _walk(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def compare(original: ast.FunctionDef, mutant: ast.FunctionDef) -> tuple[str, str]:
    """Return the statements that differ; they are equal if the functions differ in words alone."""
    old, new = ([line.strip() for line in _Wordless().read(function)] for function in (original, mutant))
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return "; ".join(old), "; ".join(new)


class _Wordless(ast.NodeTransformer):
    """Makes sentences for people equal that differ in case or in mutmut's XX, and the reasons of waits for the log."""

    def read(self, function: ast.FunctionDef) -> list[str]:
        return ast.unparse(self.visit(function)).splitlines()[1:]

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and " " in node.value.strip():
            return ast.Constant(node.value.removeprefix("XX").removesuffix("XX").lower())
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_wait = isinstance(node.func, ast.Name) and node.func.id == "Wait"
        if is_wait and node.args and isinstance(node.args[0], ast.Constant):
            node.args[0] = ast.Constant("")
        return self.generic_visit(node)
