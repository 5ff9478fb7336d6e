"""Long-running programs: their log, and the progress in their output."""

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning_node.programs import ProgramError, Programs

KEPT_LINES = 10_000
"""Lines to keep; a compiler may write thousands of notes after its first error."""
LARGEST_LOG = 10 << 20
MOST_PERCENT = 99
"""Most progress of a compilation that runs: CMake writes 100 % before it links."""
LAST_PERCENT = 90
"""
Progress from which the files that are left take longest.

CMake counts files, and Horovod's longest come last: a first rehearsal on two cores shows 98 % for half of the time. The
count is therefore no base for an estimate of the remaining time.
"""
_PERCENT = re.compile(r"\[\s*(\d{1,3})%\]")
_COLLECTING = re.compile(r"(Collecting|Processing) ")
_DOWNLOADING = re.compile(r"\s*Downloading (\S+)(?: \(([^)]+)\))?")
_BUILDING = re.compile(r"\s*Building wheel for (\S+)")

Report = Callable[[str, int, int, str], None]
"""Receiver of a detail, the completed amount, the total and the unit."""


def ignore_line(_line: str) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Transcript:
    """Runs programs and appends their output to a log."""

    log: Path
    programs: Programs
    environment: Mapping[str, str] = field(default_factory=dict)  # In addition to the variables of this process

    def begin(self) -> None:
        """Make the log's folder; rotate a log over 10 MiB."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            self.log.replace(self.log.with_name(f"{self.log.name}.1"))

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        environment: Mapping[str, str] | None = None,
        programs: Programs | None = None,
        on_line: Callable[[str], None] = ignore_line,
    ) -> str:
        """
        Run a program and return its last 10,000 lines; kill it with its children after the timeout.

        ProgramError contains those lines too.
        """
        variables = {**os.environ, **self.environment, **(environment or {})}
        process = (programs or self.programs).start(argv, environment=variables, output=subprocess.PIPE)
        late = threading.Event()

        def give_up() -> None:
            late.set()
            _kill(process)

        timer = threading.Timer(timeout_seconds, give_up)
        timer.start()
        try:
            output = self._follow(process, argv, on_line)
            status = process.wait()
        except BaseException:
            _kill(process)
            process.wait()
            raise
        finally:
            timer.cancel()
        command = " ".join(argv)
        if late.is_set():
            raise ProgramError(f"{command} took longer than {timeout_seconds:.0f} s", output, is_late=True)
        if status:
            raise ProgramError(f"{command} ended with status {status}", output, status=status)
        return output

    def _follow(self, process: "subprocess.Popen[bytes]", argv: Sequence[str], on_line: Callable[[str], None]) -> str:
        kept: deque[str] = deque(maxlen=KEPT_LINES)
        with self.log.open("a", encoding="utf-8") as log, process.stdout or contextlib.nullcontext() as stream:
            log.write(f"$ {' '.join(argv)}\n")
            for raw in stream or ():
                line = raw.decode("utf-8", "replace").rstrip("\n")
                log.write(f"{line}\n")
                log.flush()
                kept.append(line)
                on_line(line)
        return "\n".join(kept)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def follow_pip(report: Report, total: int) -> Callable[[str], None]:
    """
    Return a reader of pip's lines that reports progress in packages.

    pip writes a line at the start of a package or a download; it counts bytes only on a terminal.
    """
    seen, last = 0, ""

    def read(line: str) -> None:
        nonlocal seen, last
        before = seen, last
        if _COLLECTING.match(line):
            seen = min(seen + 1, total)
        elif found := _DOWNLOADING.match(line):
            name = found[1].rpartition("/")[2].partition("-")[0]
            last = f"downloading {name}" + (f" ({found[2]})" if found[2] else "")
        elif found := _BUILDING.match(line):
            last = f"building {found[1]}"
        elif line.startswith("Installing collected packages"):
            seen, last = total, f"installing the packages, all {total} downloaded"
            report(last, 0, 0, "")  # pip writes nothing until all are installed
            return
        if (seen, last) != before:
            report(last or "collecting packages", max(0, seen - 1) if seen < total else seen, total, "packages")

    return read


def follow_compiler(report: Report, what: str) -> Callable[[str], None]:
    """Return a reader of make's lines that reports progress; CMake's Makefiles write `[ 42%]`."""
    most = 0

    def read(line: str) -> None:
        nonlocal most
        found = _PERCENT.search(line)
        percent = min(int(found[1]), MOST_PERCENT) if found else 0
        if percent > most:
            most = percent
            report(f"{what}; the last files take longest" if most >= LAST_PERCENT else what, most, 100, "%")

    return read
