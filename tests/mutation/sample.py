"""
Changes random lines of the product, one at a time, and counts the changes that no unit test finds.

mutmut needs pure code; this tries the rest. A mutant is tried with tests that run its line.
The same seed and the same product give the same mutants, so two runs tell what a change of the tests has lost.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.workplace import ROOT, TOOL

AREAS = {
    "constructs/deeplearning_cdk": "tests/unit/deeplearning_cdk",
    "contract/deeplearning_contract": "tests/unit/deeplearning_contract",
    "cli/deeplearning_cli": "tests/unit/deeplearning_cli",
    "userdata/deeplearning_provision": "tests/unit/deeplearning_provision",
    "rehearsal/cdk_rehearsal": "tests/unit/cdk_rehearsal",
    "rehearsal/deeplearning_rehearsal": "tests/unit/deeplearning_rehearsal",
}
"""Folder of the product -> folder of its unit tests."""
PLACE = ROOT / "build/mutation/sample"
ROOTS = ("contract", "lambda", "userdata", "constructs", "view", "cli", "rehearsal", ".")
TRIED_MOST = 25
"""Tests tried for a mutant; those that reach the fewest lines come first, since they are about this line."""
LIMIT_SECONDS = 300
TURNED: dict[type[ast.AST], str] = {ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.Gt: "<=", ast.In: "not in"}

CONTEXTS = """
import coverage, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    coverage.Coverage.current().switch_context(item.nodeid)
"""
"""Plug-in of pytest that tells coverage which test runs; a fixture of a module belongs to the first that needs it."""


@dataclass(frozen=True, order=True)
class Change:
    """
    A change of an expression or a statement.

    Attributes:
        file: Path in the repository.
        line: Its first line, from 1.
        start: Index of the first byte that it replaces.
        end: Index behind the last one.
        text: What stands there instead.
    """

    file: str
    line: int
    start: int
    end: int
    text: str


def mutate(node: ast.AST) -> tuple[ast.expr | ast.stmt, str] | None:
    """Return what to replace with which text; None for a node that stays."""
    found: tuple[ast.expr | ast.stmt, str] | None = None
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in TURNED:
            found = node, f"{ast.unparse(left)} {TURNED[type(operator)]} {ast.unparse(right)}"
        case ast.If(test) | ast.IfExp(test) | ast.While(test):
            found = test, f"(not ({ast.unparse(test)}))"
        case ast.BoolOp(operator, values):
            other = " or " if isinstance(operator, ast.And) else " and "
            found = node, f"({other.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.Expr(ast.Call()):
            found = node, "None"
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            found = value, "None"
        case ast.Constant(bool() as value):
            found = node, str(not value)
        case ast.Constant(int() as value):
            found = node, str(value + 1)
    return found


def list_changes(file: str, source: str) -> Iterator[Change]:
    """Yield the mutants of the functions of a module."""
    lines = [0]
    for line in source.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    for node in (node for function in functions for statement in function.body for node in ast.walk(statement)):
        if (mutated := mutate(node)) is not None:
            old, text = mutated
            start = lines[old.lineno - 1] + old.col_offset
            end = lines[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
            yield Change(file, old.lineno, start, end, text)


def choose(count: int, seed: int) -> list[Change]:
    """Return random mutants, as many of each area."""
    chosen = []
    for area in AREAS:
        chooser = random.Random(f"{seed} {area}")  # noqa: S311 - chooses samples
        files = sorted(path for path in (ROOT / area).rglob("*.py"))
        changes = [
            change for path in files for change in list_changes(str(path.relative_to(ROOT)), path.read_text("utf-8"))
        ]
        chosen += chooser.sample(sorted(changes), count // len(AREAS))
    return chosen


def read_reached(folder: str) -> dict[tuple[str, int], list[str]]:
    """Run the unit tests of a folder; return file and line -> the tests that run it, those that reach least first."""
    data, settings = PLACE / f"{Path(folder).name}.coverage", PLACE / "coverage.cfg"
    settings.write_text("\n  ".join(["[run]\nrelative_files = true\nsource =", *AREAS]))
    (PLACE / "contexts.py").write_text(CONTEXTS)
    words = ["-m", "coverage", "run", f"--rcfile={settings}", f"--data-file={data}", "-m", "pytest", "-q"]
    subprocess.run(
        [sys.executable, *words, "-p", "contexts", "-p", "no:cacheprovider", folder],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TOOL), str(PLACE)])},
        check=True,
    )
    sys.path.insert(0, str(TOOL))
    from coverage import CoverageData  # noqa: PLC0415 - it is among the packages of mutmut.lock

    read = CoverageData(str(data))
    read.read()
    lines = {file: read.contexts_by_lineno(file) for file in read.measured_files()}
    sizes = Counter(name for file in lines.values() for names in file.values() for name in names if name)
    return {
        (file, line): sorted((name for name in names if name), key=lambda name: (sizes[name], name))
        for file, found in lines.items()
        for line, names in found.items()
    }


def copy_tree(name: str) -> Path:
    """Return a copy of the repository's own files, with links to what is built."""
    place = PLACE / name
    shutil.rmtree(place, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for file in filter(None, listed.split("\0")):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, place / file)
    for built in ("build", "node_modules", ".venv"):
        (place / built).symlink_to(ROOT / built)
    return place


def is_found(place: Path, change: Change, tests: Sequence[str]) -> bool:
    """Return whether a test fails on the change; one that makes the tests hang counts as found."""
    file = place / change.file
    source = file.read_bytes()
    file.write_bytes(source[: change.start] + change.text.encode() + source[change.end :])
    roots = os.pathsep.join(str(place / name) for name in ROOTS)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        ended = subprocess.run(
            command,
            cwd=place,
            env=os.environ | {"PYTHONPATH": roots},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_bytes(source)
    return ended.returncode != 0


def main() -> int:
    """Print each mutant that no test finds, and the number found in each area; return 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.sample", description=__doc__)
    parser.add_argument("--count", type=int, default=240, help="mutants in all (default: 240)")
    parser.add_argument("--only", choices=AREAS, default="", help="a single folder of the product, of the same mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the choice (default: 1)")
    options = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    chosen = choose(options.count, options.seed)
    places: SimpleQueue[Path] = SimpleQueue()
    cores = os.cpu_count() or 1
    for index in range(cores):
        places.put(copy_tree(f"copy-{index}"))

    def try_change(change: Change) -> bool:
        tests = reached.get((change.file, change.line), [])[:TRIED_MOST]
        place = places.get()
        try:
            found = bool(tests) and is_found(place, change, tests)
        finally:
            places.put(place)
        if not found:
            print(f"not found by {len(tests)} tests: {change.file}:{change.line}: {change.text}", flush=True)
        return found

    for area in [options.only] if options.only else AREAS:
        reached = read_reached(AREAS[area])
        with ThreadPoolExecutor(cores) as pool:
            found = list(pool.map(try_change, (change for change in chosen if change.file.startswith(f"{area}/"))))
        print(f"{area}: {sum(found)} of {len(found)} found", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
