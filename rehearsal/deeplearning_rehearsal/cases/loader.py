"""Finds cases: those of this package by name, those of users by file."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

from deeplearning_rehearsal.cases import catalogue
from deeplearning_rehearsal.cases.case import Case, CaseError

_SEPARATOR = "::"


@cache
def list_cases() -> tuple[Case, ...]:
    """Return the package's own cases, by name."""
    modules = [
        importlib.import_module(f"{catalogue.__name__}.{each.name}")
        for each in pkgutil.iter_modules(catalogue.__path__)
    ]
    return tuple(sorted((case for module in modules for case in _read(module)), key=lambda case: case.name))


def find_cases(reference: str) -> tuple[Case, ...]:
    """
    Return the cases that a reference names.

    Args:
        reference: Name of a case of this package; or a file of cases, `my_cases.py`; or one of that,
            `my_cases.py::my-case`.

    Raises:
        CaseError: There is no such case, or its file cannot be imported.
    """
    path, _, name = reference.partition(_SEPARATOR)
    if not path.endswith(".py"):
        known = {case.name: case for case in list_cases()}
        if reference not in known:
            raise CaseError(
                f"--case must be one of {', '.join(known)}, all, or a file that ends in .py, got {reference!r}"
            )
        return (known[reference],)
    file = Path(path).resolve()
    cases = [replace(case, reference=f"{file}{_SEPARATOR}{case.name}") for case in _read(_load(file))]
    chosen = tuple(case for case in cases if name in {"", case.name})
    if not chosen:
        names = ", ".join(case.name for case in cases) or "none"
        raise CaseError(f"--case must name a case of {path}, got {reference!r}; its cases are: {names}")
    return chosen


def find_case(reference: str) -> Case:
    """Return the case of a reference that names one; CaseError as `find_cases`."""
    return find_cases(reference)[0]


def find_file(case: Case) -> Path:
    """Return the file of a case."""
    return Path(case.function.__code__.co_filename)


def _load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise CaseError(f"--case must name a case or a file, got {str(file)!r}; there is no such file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except CaseError as error:
        raise CaseError(f"{file.name}: {error}") from error
    except Exception as error:
        raise CaseError(f"{file.name} must be imported, it ends with {type(error).__name__}: {error}") from error
    return module


def _read(module: ModuleType) -> Iterator[Case]:
    """Yield the cases that a module defines, in their order."""
    return (value for value in vars(module).values() if isinstance(value, Case))
