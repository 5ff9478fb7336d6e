"""
Records how the tests that try rows of the fault catalogue end, and sums the catalogue up at the end of a run.

The records are a file for each test module, so that runs of other modules, at the same time too, leave them alone.
`make docs` reads them. A test counts as passed when every one of its parameter sets ran and passed.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from docs.fault_table import RECORDS, read_catalogue, summarize
from docs.fault_trials import Trial, find_trials, read_tests

_ENDS = ("passed", "skipped", "failed")
"""From good to bad; a test ends as the worst of its parameter sets."""


class FaultLedger:
    """
    The pytest plugin.

    Args:
        root: The checkout.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[Path, dict[str, Trial]] = {}
        self.collected: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.outcomes: dict[str, str] = {}
        self.overlooked: list[str] = []

    @pytest.hookimpl
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Count parameter sets, and compare the marks that pytest sees with those that the table reads."""
        if item.path not in self.known:
            self.known[item.path] = self._read(item.path)
        key = _key(item.nodeid)
        self.collected[key] += 1
        trial = self.known[item.path].get(key)
        for name, read in (("fault", trial and trial.faults), ("defect", trial and trial.defects)):
            marked = {row for mark in item.iter_markers(name) for row in mark.args}
            if not marked <= (read or frozenset()):
                self.overlooked.append(f"{item.nodeid}: {name}{tuple(marked)} must decorate the function or its module")

    def _read(self, path: Path) -> Mapping[str, Trial]:
        try:
            return {trial.key: trial for trial in read_tests(self.root, path)}
        except ValueError as error:
            self.overlooked.append(str(error))
            return {}

    @pytest.hookimpl
    def pytest_collection_finish(self) -> None:
        """Refuse marks that the table of faults would miss."""
        if self.overlooked:
            raise pytest.UsageError("\n".join(self.overlooked))

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take down how a test ended."""
        key = _key(report.nodeid)
        self.ended[key] += report.when == "teardown"
        if report.when == "call" or not report.passed:
            self.outcomes[key] = max(self.outcomes.get(key, "passed"), report.outcome, key=_ENDS.index)

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        """Write down what ran whole, or failed."""
        for trials in self.known.values():
            ended = {key: self.outcomes[key] for key in trials if key in self.outcomes and self._is_whole(key)}
            if ended:
                self._record(trials, ended)

    def _is_whole(self, key: str) -> bool:
        return self.outcomes[key] == "failed" or self.ended[key] == self.collected[key]

    def _record(self, trials: Mapping[str, Trial], ended: Mapping[str, str]) -> None:
        place = next(iter(trials.values())).path.removesuffix(".py").replace("/", ".")
        record = self.root / RECORDS / f"{place}.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(record.read_text()) if record.exists() else {}
        merged = {key: outcome for key, outcome in (before | ended).items() if key in trials}
        draft = record.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n")
        draft.replace(record)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Sum the catalogue up: what tries it in this checkout, whatever ran."""
        try:
            line = summarize(read_catalogue(self.root), find_trials(self.root))
        except (OSError, SyntaxError, ValueError, LookupError) as error:
            line = f"faults: not summed up: {error}"
        terminalreporter.write_line(line)


def _key(nodeid: str) -> str:
    """Return a test's id without its parameters."""
    return nodeid.partition("[")[0]
