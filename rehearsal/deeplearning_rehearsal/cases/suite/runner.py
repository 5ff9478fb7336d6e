"""Rehearses several cases: as many at once as fit, each in a process of its own; this process alone writes results."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.run.progress import report_line
from deeplearning_rehearsal.cases.case import Case
from deeplearning_rehearsal.cases.loader import find_file
from deeplearning_rehearsal.cases.results import Result, merge_result, read_results, render_line
from deeplearning_rehearsal.cases.run.one_case import CaseTask, choose_options, fail, read_entry, rehearse_case
from deeplearning_rehearsal.cases.suite.schedule import Wanted, choose_next, estimate, read_free_mib
from deeplearning_rehearsal.cases.suite.sources import digest_case, digest_sources
from deeplearning_rehearsal.options import RehearsalOptions

LOG = "run.log"
"""Output of a case's rehearsal, in the case's folder."""
COMMAND = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "deeplearning_rehearsal.cases.run.one_case")
"""Rehearses a case; however this process ends, so does that one, and with it the rehearsal."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Running:
    """A case that runs: its process, what it was estimated to need, what runs beside it, and on which sources."""

    process: "subprocess.Popen[bytes]"
    wanted: Wanted
    digest: str
    beside: set[str] = field(default_factory=set)


@dataclass
class SuiteRun:
    """
    One command that rehearses several cases.

    Attributes:
        app: Command that synthesizes each case's stack. None: the assembly of the options is deployed.
        jobs: Cases that may run at once.
        results: Entries of the cases that ended.
        skipped: Cases that passed on the same sources before.
    """

    chosen: Sequence[Case]
    app: str | None
    options: RehearsalOptions
    jobs: int
    results: dict[str, Result] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def carry_out(self, *, again: bool) -> None:
        """
        Rehearse the cases, those that passed on the same sources only if `again`; write each result when it is known.
        """
        before = read_results(self.options.out)
        if not again:
            sources = self._digest_sources()
            self.skipped = [
                case.name
                for case in self.chosen
                if _has_passed(before.get(case.name), digest_case(sources, find_file(case)))
            ]
        waiting = [estimate(case, before.get(case.name)) for case in self.chosen if case.name not in self.skipped]
        if not waiting:
            return
        report_line(
            f"{len(waiting)} of {len(self.chosen)} cases, at most {self.jobs} at once; "
            f"logs: {self.options.out}/CASE/{LOG}"
        )
        prepare_base_root(self.options.cache, report_line)
        assemblies = self.options.out / "assemblies"
        shutil.rmtree(assemblies, ignore_errors=True)
        running: list[Running] = []
        try:
            self._run_all(waiting, running, assemblies)
        finally:
            for item in running:
                item.process.terminate()  # by its process: a name might be another user's rehearsal
            for item in running:
                item.process.wait()

    def _run_all(self, waiting: list[Wanted], running: list[Running], assemblies: Path) -> None:
        free_mib = read_free_mib(Path("/proc/meminfo").read_text())
        total = len(waiting)
        while waiting or running:
            wanted = choose_next(waiting, [item.wanted for item in running], self.jobs, free_mib)
            if wanted is not None:
                waiting.remove(wanted)
                running.append(self._start(wanted, running, assemblies))
                continue
            ended = next((item for item in running if item.process.poll() is not None), None)
            if ended is None:
                time.sleep(_POLL_SECONDS)
                continue
            running.remove(ended)
            if (once_more := self._end(ended)) is not None:
                waiting.append(once_more)
            else:
                name, place = ended.wanted.name, f"[{total - len(waiting) - len(running)} of {total}]"
                report_line(f"{place:>10} {render_line(name, self.results[name])}")

    def _start(self, wanted: Wanted, running: Sequence[Running], assemblies: Path) -> Running:
        options = choose_options(self._find(wanted.name), self.options)
        options.folder.mkdir(parents=True, exist_ok=True)
        (options.folder / "report.json").unlink(missing_ok=True)
        task = CaseTask(options, self.app, assemblies)
        digest = self.digest(wanted.name)  # before the case begins: it proves nothing of sources that change meanwhile
        with (options.folder / LOG).open("wb") as log:
            # A session of its own, since an interrupt of the terminal is this process's.
            process = subprocess.Popen(
                [*COMMAND, task.to_json()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        item = Running(process, wanted, digest, {other.wanted.name for other in running})
        for other in running:
            other.beside.add(wanted.name)
        return item

    def _end(self, item: Running) -> Wanted | None:
        """Keep the result of a case; return what is to be rehearsed once more, because it failed beside others."""
        name, status = item.wanted.name, item.process.returncode
        folder = self.options.out / name
        entry = read_entry(folder, status)
        if "requested" not in entry:
            entry = fail(f"{entry['reasons'][0]}; {folder / LOG} ends with: {_read_last_line(folder / LOG)}")
        if entry["verdict"] != "pass" and item.beside:
            beside = sorted(item.beside)
            self.results[name] = entry | {"beside": beside}
            kept = folder.with_name(f"{name}.beside")
            shutil.rmtree(kept, ignore_errors=True)
            folder.rename(kept)
            report_line(f"{'':>10} {name} failed beside {', '.join(beside)} ({entry['reasons'][0]}); once more alone")
            return Wanted(name, item.wanted.seconds, item.wanted.memory_mib, is_alone=True)
        if (first := self.results.get(name)) is not None:
            entry |= {"first": first}
        self.results[name] = entry
        self.keep(name, entry, item.digest)
        return None

    def keep(self, name: str, entry: Result, digest: str) -> None:
        """Write the entry of a case; a pass with the digest of its sources, unless they changed while it ran."""
        if entry["verdict"] == "pass" and digest == self.digest(name):
            entry["sources"] = digest
        merge_result(self.options.out, name, entry)

    def digest(self, name: str) -> str:
        """Digest the sources of a case."""
        return digest_case(self._digest_sources(), find_file(self._find(name)))

    def _find(self, name: str) -> Case:
        return next(case for case in self.chosen if case.name == name)

    def _digest_sources(self) -> str:
        assembly = "" if self.app is not None else digest_sources(self.options.assembly, self.options.out, ())
        return digest_sources(Path(), self.options.out, (self.app or assembly, str(self.options.stack)))


def rehearse_one(case: Case, app: str | None, options: RehearsalOptions) -> tuple[int, Result]:
    """
    Rehearse one case in this process, with progress; write its result, and return exit status and entry.

    Raises RehearsalError if it cannot be tried on this machine.
    """
    suite = SuiteRun([case], app, options, jobs=1)
    digest = suite.digest(case.name)
    status, entry = rehearse_case(case, CaseTask(choose_options(case, options), app))
    suite.keep(case.name, entry, digest)
    return status, entry


def count_jobs(cores: Callable[[], int | None] = os.cpu_count) -> int:
    """Return how many cases run at once by default: two a core, since they mostly wait."""
    return 2 * (cores() or 1)


def _has_passed(entry: Result | None, digest: str) -> bool:
    return entry is not None and entry["verdict"] == "pass" and entry.get("sources") == digest


def _read_last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")[-300:]
