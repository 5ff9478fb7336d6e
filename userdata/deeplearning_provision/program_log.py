"""Programs that take long, whose lines go to a log and to a watcher."""

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning_node.programs import ProgramError, Programs

KEPT_LINES = 10_000
"""A compiler's first error may be followed by thousands of notes."""
LARGEST_LOG = 10 << 20


def ignore_line(_line: str) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Transcript:
    """A log of programs, which is appended to."""

    log: Path
    programs: Programs
    # Variables of every program, beside those of this process
    environment: Mapping[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Make the log's folder; rotate a log of more than 10 MiB."""
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
        Run a program and return its last 10,000 lines; after the timeout, kill it with its children.

        ProgramError, with those lines, when it is missing, takes too long, or its status is not 0.
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
