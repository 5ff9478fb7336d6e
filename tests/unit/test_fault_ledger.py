"""Records of a run in the ledger of faults; each run is a pytest of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
from pathlib import Path
from tests.fault_ledger import FaultLedger
def pytest_configure(config):
    config.addinivalue_line("markers", "fault(*rows): tries rows")
    config.pluginmanager.register(FaultLedger(Path(__file__).parent))
"""
TESTS = """
import pytest
@pytest.mark.fault(1)
@pytest.mark.parametrize("number", range(3))
def test_each(number): assert number < LIMIT
@pytest.mark.defect("D01")
def test_named(): ...
@pytest.mark.fault(2)
@pytest.mark.skip
def test_skipped(): ...
@pytest.mark.fault(3)
def test_unready(nowhere): ...
def test_of_nothing(): ...
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs the tests of a folder and returns what pytest said."""
    (tmp_path / "conftest.py").write_text(CONFTEST)

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_all.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def _read(folder: Path) -> dict[str, str]:
    records = json.loads((folder / "build" / "faults" / "test_all.json").read_text())
    return {key.partition("::test_")[2]: outcome for key, outcome in records.items()}


def test_a_test_ends_as_the_worst_of_its_parameter_sets(run: Run, tmp_path: Path) -> None:
    run(TESTS.replace("LIMIT", "2"))
    assert _read(tmp_path) == {"each": "failed", "named": "passed", "skipped": "skipped", "unready": "failed"}


def test_a_part_of_a_test_replaces_no_result_unless_it_fails(run: Run, tmp_path: Path) -> None:
    run(TESTS.replace("LIMIT", "2"))
    run(TESTS.replace("LIMIT", "3"), "-k", "each and 1")
    assert _read(tmp_path)["each"] == "failed"
    run(TESTS.replace("LIMIT", "3"))
    assert _read(tmp_path)["each"] == "passed"
    run(TESTS.replace("LIMIT", "1"), "-k", "each and 1")
    assert _read(tmp_path)["each"] == "failed"


def test_results_of_tests_that_are_gone_go_too(run: Run, tmp_path: Path) -> None:
    run(TESTS.replace("LIMIT", "3"))
    run(TESTS.replace("LIMIT", "3").replace("named", "renamed"))
    assert set(_read(tmp_path)) == {"each", "renamed", "skipped", "unready"}


def test_marks_that_the_table_would_miss_stop_the_run(run: Run, tmp_path: Path) -> None:
    hidden = "import pytest\ndef test_hidden(): ...\ntest_hidden = pytest.mark.fault(7)(test_hidden)\n"
    ended = run(hidden)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_hidden: fault(7,) must decorate the function or its module" in ended.stderr
    assert not (tmp_path / "build").exists()
