"""Runs programs by argument list, with a time limit that holds even for a process that cannot be killed."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KILL_SECONDS = 2
KEPT_OUTPUT = 4000


class ProgramError(Exception):
    """A program is missing, ran too long or ended with a status other than 0."""

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
        Describe what went wrong.

        Args:
            cause: In one line.
            output: What the program last wrote.
            is_missing: Whether there is no such program.
            is_late: Whether it was given up because it took too long.
            status: With which it ended by itself; negative for a signal. Default: it did not end by itself.
        """
        super().__init__(cause)
        self.output = output
        self.is_missing = is_missing
        self.is_late = is_late
        self.status = status


@dataclass(frozen=True)
class Programs:
    """The programs of a node."""

    search_path: str = SYSTEM_PATH  # Where they are looked for, as in `PATH`

    def has(self, command: str) -> bool:
        """Tell whether a command exists."""
        return shutil.which(command, path=self.search_path) is not None

    def run(self, argv: Sequence[str], *, timeout_seconds: float, environment: Mapping[str, str] | None = None) -> str:
        """
        Run a program to its end.

        Args:
            argv: The program and its arguments; no shell reads them.
            timeout_seconds: After this time the program and its children are killed. One that the kernel
                cannot kill, such as a mount of a silent server, is left behind.
            environment: Variables besides `PATH`. Default: those of the agent.

        Returns:
            What it wrote to standard output and error, in order.

        Raises:
            ProgramError: It is missing, took too long, or its status is not 0.
        """
        process = self.start(argv, environment=environment, output=subprocess.PIPE)
        try:
            written, _ = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
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
        """
        Start a program in a session of its own and do not wait for it.

        Raises:
            ProgramError: It is missing or cannot be executed.
        """
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
            if Path(argv[0]).is_absolute() and Path(argv[0]).exists():  # Linux says the same of a script's interpreter.
                raise ProgramError(f"{argv[0]} cannot be executed: its first line names no program") from error
            raise ProgramError(f"{argv[0]} is not installed", is_missing=True) from error
        except OSError as error:
            raise ProgramError(f"{argv[0]} cannot be executed: {error.strerror}") from error


def system_path(inherited: str) -> str:
    """Return the inherited `PATH` with the system's own folders behind it."""
    return ":".join(dict.fromkeys([*filter(None, inherited.split(":")), *SYSTEM_PATH.split(":")]))
