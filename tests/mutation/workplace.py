"""
The copies below build/mutation on which mutmut works: a package at the top, as mutmut expects it, and its tests.

mutmut leaves out decorated methods, so a property is written as a method that becomes one below it. It also leaves out
the constants of a module. Searches look at ten histories: the told ones are the tests that name a fault.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "build/mutmut"
"""The packages of mutmut.lock."""
COPIED = ("tests/conftest.py", "tests/events", "tests/real_time.py", "tests/shared_documents.py")
"""Files that the tests of both packages need besides their own folder."""
REPLACED = {"tests/depth.py": "IS_DEEP = False\nEXAMPLES = 10\n"}
"""Files that are others on the copy."""


@dataclass(frozen=True)
class Package:
    """
    A package whose code mutmut changes.

    Attributes:
        name: Names it in commands and in the list of survivors.
        root: The folder of its top package.
        module: Its dotted name.
        folder: Folder of its tests, below tests/unit.
        tests: Tests that run for each mutant, in the folder.
    """

    name: str
    root: str
    module: str
    folder: str
    tests: tuple[str, ...]


POLICY_TESTS = (
    "block_start",
    "candidate_search",
    "crashes",
    "histories",
    "requested_capacity",
    "stop_histories",
)
MEMBERSHIP_TESTS = (
    "evictions",
    "first_membership",
    "formation_outcome",
    "liveness",
    "membership_changes",
    "membership_files",
    "worker_reports",
)
PACKAGES = (
    Package(
        name="policy",
        root="lambda",
        module="capacity_adjuster.policy",
        folder="capacity_adjuster",
        tests=(
            "policy",
            "events",
            *(f"test_{name}.py" for name in POLICY_TESTS),
            "test_scaling_model.py::test_no_recorded_history_breaks_a_promise",
        ),
    ),
    Package(
        name="membership",
        root="userdata",
        module="deeplearning_agent.membership",
        folder="deeplearning_agent",
        tests=(
            *(f"membership/test_{name}.py" for name in MEMBERSHIP_TESTS),
            "model/test_cluster_model.py::test_no_told_history_breaks_a_promise",
        ),
    ),
)


def run_mutmut(package: Package) -> Path:
    """
    Mutate a package and run its tests for each mutant, on a copy in build/mutation.

    Returns:
        The folder with the mutated modules and the results.

    Raises:
        CalledProcessError: The tests fail without a mutant.
    """
    place = ROOT / "build/mutation" / package.name
    prepare(package, place)
    run = "import sys, mutmut.__main__ as mutmut; sys.argv = ['mutmut', 'run']; mutmut.cli()"
    environment = os.environ | {"PYTHONPATH": str(TOOL), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", run], cwd=place, env=environment, check=True)
    return place / "mutants"


def prepare(package: Package, place: Path) -> None:
    """Copy a package and its tests to where mutmut works, and forget what was there."""
    shutil.rmtree(place, ignore_errors=True)
    top = package.module.partition(".")[0]
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / package.root / top, place / top, ignore=ignored)
    for module in (place / package.module.replace(".", "/")).glob("*.py"):
        module.write_text(lift_properties(module.read_text()))
    beside = (str(path.relative_to(ROOT)) for path in (ROOT / "tests/unit").glob("*.py") if "test_" not in path.name)
    for name in (*COPIED, *beside, f"tests/unit/{package.folder}"):
        source, target = ROOT / name, place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
    for name, text in REPLACED.items():
        (place / name).write_text(text)
    (place / "pyproject.toml").write_text(configure(package, top))


def configure(package: Package, top: str) -> str:
    """Return the settings of mutmut and pytest."""
    tests = [f"tests/unit/{package.folder}/{test}" for test in package.tests]
    return f"""
[tool.mutmut]
source_paths = ["{top}"]
only_mutate = ["{package.module.replace(".", "/")}/*"]
timeout_multiplier = 3.0
timeout_constant = 5.0
do_not_mutate_patterns = ["LOG\\\\."]  # Words of the log are for people.
pytest_add_cli_args_test_selection = {json.dumps(tests)}

[tool.pytest.ini_options]
pythonpath = ["."]
addopts = "--strict-markers --import-mode=importlib -p no:cacheprovider"
"""


def lift_properties(source: str) -> str:
    """Return a module whose properties are methods first and become properties below."""
    lines = source.splitlines(keepends=True)
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    methods = [node for cls in classes for node in cls.body if isinstance(node, ast.FunctionDef)]
    for method in sorted(methods, key=lambda method: method.lineno, reverse=True):
        if [ast.unparse(decorator) for decorator in method.decorator_list] == ["property"]:
            lines.insert(method.end_lineno or 0, f"    {method.name} = property({method.name})\n")
            del lines[method.decorator_list[0].lineno - 1]
    return "".join(lines)
