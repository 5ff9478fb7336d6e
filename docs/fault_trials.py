"""
Trials of the rows of the fault catalogue: the marked tests and the rehearsal's cases, read without running anything.

A test tries the rows of `@pytest.mark.fault(33, 34)` and `@pytest.mark.defect("D27")`. A mark may also stand on one
parameter set, or hold for a whole module as `pytestmark`.

The tests of the embedded AWS, the lab and the rehearsal show that a fault can be injected, not that a cluster survives
it; they are listed and do not count.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CASES = Path("rehearsal/deeplearning_rehearsal/cases/catalogue")
STAND_INS = (
    "tests/embedded_aws/",
    "tests/rehearsal/test_lab_",
    "tests/unit/cdk_rehearsal",
    "tests/unit/deeplearning_rehearsal",
)
"""Folders of the tests of the embedded AWS, the lab and the rehearsal itself."""
_KINDS: dict[str, type] = {"fault": int, "defect": str}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Trial:
    """
    Test or rehearsal case that tries rows.

    Attributes:
        key: Test id without parameters, or the case's name.
        path: Its file, relative to the checkout.
        title: Its statement, in words.
        faults: Faults of the catalogue that it tries.
        defects: Defects of the predecessor that it tries.
        kind: Kind of trial.
    """

    key: str
    path: str
    title: str
    faults: frozenset[int]
    defects: frozenset[str]
    kind: Literal["test", "case", "injector"] = "test"


def find_trials(root: Path) -> list[Trial]:
    """
    Return all trials in a checkout, in the order of files and lines.

    Args:
        root: The checkout.

    Raises:
        ValueError: A mark cannot be read; the message names its file and line.
    """
    tests = [trial for path in sorted((root / "tests").rglob("test_*.py")) for trial in read_tests(root, path)]
    cases = [trial for path in sorted((root / CASES).glob("*.py")) for trial in read_cases(root, path)]
    return tests + sorted(cases, key=lambda trial: trial.key)


def read_tests(root: Path, path: Path) -> Iterator[Trial]:
    """Return the tests of a file that try a row."""
    text = path.read_text()
    if not any(f"pytest.mark.{name}" in text for name in _KINDS):
        return
    module = ast.parse(text, str(path))
    place = path.relative_to(root).as_posix()
    common = [value for statement in module.body for value in _read_pytestmark(statement)]
    functions = [each for each in module.body if isinstance(each, _Function) and each.name.startswith("test_")]
    _refuse_others(module, [*common, *(mark for function in functions for mark in function.decorator_list)], place)
    for function in functions:
        marks = [*common, *function.decorator_list]
        faults = frozenset(row for row in _read_marks(marks, "fault", place) if isinstance(row, int))
        defects = frozenset(row for row in _read_marks(marks, "defect", place) if isinstance(row, str))
        if faults or defects:
            key, title = f"{place}::{function.name}", function.name.removeprefix("test_").replace("_", " ")
            yield Trial(key, place, title, faults, defects, "injector" if place.startswith(STAND_INS) else "test")


def read_cases(root: Path, path: Path) -> Iterator[Trial]:
    """Return the cases of a file: its functions with the decorator `case`."""
    for function in ast.parse(path.read_text(), str(path)).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for mark in function.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "case":
                title = ast.literal_eval(mark.args[0])
                rows = [ast.literal_eval(key.value) for key in mark.keywords if key.arg == "faults"]
                key, place = function.name.replace("_", "-"), path.relative_to(root).as_posix()
                yield Trial(key, place, title, frozenset(*rows), frozenset(), "case")


def _refuse_others(module: ast.Module, marks: Iterable[ast.expr], place: str) -> None:
    """Refuse a mark that stands anywhere else."""
    read = {node for mark in marks for node in ast.walk(mark)}
    for node in ast.walk(module):
        for name in _KINDS:
            if node not in read and isinstance(node, ast.Attribute) and ast.unparse(node) == f"pytest.mark.{name}":
                raise ValueError(f"{place}:{node.lineno}: {name} must decorate a function or stand in pytestmark")


def _read_pytestmark(statement: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(statement, ast.Assign) and "pytestmark" in [ast.unparse(target) for target in statement.targets]:
        yield statement.value


def _read_marks(marks: Iterable[ast.expr], name: str, place: str) -> Iterator[int | str]:
    """Yield the arguments of a mark in any decorator of a test."""
    kind = _KINDS[name]
    for mark in marks:
        calls = {node.func: node for node in ast.walk(mark) if isinstance(node, ast.Call)}
        for node in ast.walk(mark):
            if not isinstance(node, ast.Attribute) or ast.unparse(node) != f"pytest.mark.{name}":
                continue
            arguments = calls[node].args if node in calls else []
            values = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
            rows = [value for value in values if type(value) is kind and isinstance(value, int | str)]
            if not rows or len(rows) < len(arguments):
                raise ValueError(f"{place}:{node.lineno}: {name} must be given plain {kind.__name__} values")
            yield from rows
