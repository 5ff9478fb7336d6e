"""Execution of programs by argument list, with a time limit even for a process that cannot be killed."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deeplearning_node.signals import hold_stops

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KILL_SECONDS = 2
KEPT_OUTPUT = 4000


class ProgramError(Exception):
    """Program that is missing, ran too long or ended with a status other than 0."""

    def __init__(
        self,
        cause: str,
        output: str = "",
        *,
        is_missing: bool = False,
        is_late: bool = False,
        status: int | None = None,
    ) -> None:
        """
        Describe the failure: `is_late` when the program exceeded its time, `status` when it ended by itself.

        A negative status is a signal.
        """
        super().__init__(cause)
        self.output = output
        self.is_missing = is_missing
        self.is_late = is_late
        self.status = status


@dataclass(frozen=True)
class Programs:
    """Programs of a node."""

    search_path: str = SYSTEM_PATH  # Folders as in `PATH`

    def has(self, command: str) -> bool:
        return shutil.which(command, path=self.search_path) is not None

    def run(self, argv: Sequence[str], *, timeout_seconds: float, environment: Mapping[str, str] | None = None) -> str:
        """
        Run a program without a shell; return its standard output and error in order. ProgramError when it fails.

        After `timeout_seconds` the program and its children are killed; one that the kernel cannot kill, such as a
        mount of a silent server, is left behind. An interruption kills them too. Variables other than `PATH` are the
        agent's by default.
        """
        started: list[subprocess.Popen[bytes]] = []
        try:
            with hold_stops():
                started.append(self.start(argv, environment=environment, output=subprocess.PIPE))
            process = started[0]
            written, _ = process.communicate(timeout=timeout_seconds)
        except KeyboardInterrupt:
            for process in started:
                _kill(process)
            raise
        except subprocess.TimeoutExpired as error:
            _kill(process)
            written = error.output or b""
            with contextlib.suppress(subprocess.TimeoutExpired):
                written, _ = process.communicate(timeout=KILL_SECONDS)
            output = written.decode("utf-8", "replace")[-KEPT_OUTPUT:]
            cause = f"{' '.join(argv)} took longer than {timeout_seconds:.0f} s"
            raise ProgramError(cause, output, is_late=True) from error
        output = written.decode("utf-8", "replace")
        if process.returncode:
            cause = f"{' '.join(argv)} ended with status {process.returncode}"
            raise ProgramError(cause, output[-KEPT_OUTPUT:], status=process.returncode)
        return output

    def start(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        output: int | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a program in a session of its own without waiting for it; ProgramError when it cannot be executed."""
        variables = {**(os.environ if environment is None else environment), "PATH": self.search_path}
        try:
            return subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            if Path(argv[0]).is_absolute() and Path(argv[0]).exists():  # Its interpreter is missing.
                raise ProgramError(f"{argv[0]} cannot be executed: its interpreter is not installed") from error
            raise ProgramError(f"{argv[0]} is not installed", is_missing=True) from error
        except OSError as error:
            raise ProgramError(f"{argv[0]} cannot be executed: {error.strerror}") from error


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def system_path(inherited: str) -> str:
    """Return the inherited `PATH`, followed by the system's own folders."""
    return ":".join(dict.fromkeys([*filter(None, inherited.split(":")), *SYSTEM_PATH.split(":")]))
