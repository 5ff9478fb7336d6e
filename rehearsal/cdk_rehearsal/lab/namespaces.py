"""Processes in namespaces of their own: their start by a script, their end, and entry into them."""

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from cdk_rehearsal.errors import RehearsalError

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CGROUP = "cdk-rehearsal"
"""Folder of all nodes and containers in the hierarchy of cgroup2."""
_START = 'trap : INT TERM; setpriv --pdeathsig KILL sh "$@"; exit $?'
"""
Starts the first process and waits for it: a shell reports every signal that ends it.

`unshare --fork` would do so in 2.39, but says 1 for SIGKILL in 2.38.
"""


class Namespaces:
    """
    Mount, uts, ipc and pid namespaces, inside a network namespace, and the processes in them.

    Args:
        name: Name of the node or container, for messages.
        network: Path of the network namespace.
        command: A script with its arguments. It becomes the first process, and writes one line to its standard output
            when it has its own root: entering the namespaces before would run programs on this machine.
        console: File that its standard error is added to.

    Attributes:
        output: What follows the one line.

    Raises:
        RehearsalError: The script ended before; the message has the end of the console.
    """

    def __init__(self, name: str, network: str, command: Sequence[str], console: Path) -> None:
        self._name = name
        words = ["nsenter", f"--net={network}", "--", "unshare", "--mount", "--uts", "--ipc", "--pid"]
        words += ["sh", "-c", _START, "sh", *command]
        with console.open("ab") as errors:
            # A shell, the parent of the first process.
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        assert self._process.stdout is not None
        self.output: IO[bytes] = self._process.stdout
        if not self.output.readline():  # the shell keeps the pipe open: there is no end of file
            self._process.wait()
            self.output.close()
            raise RehearsalError(f"{name} did not start: {console.read_text(errors='replace')[-400:]}")

    def wait(self, seconds: float | None = None) -> int | None:
        """
        Return the exit status of the first process; None if it still runs after so many seconds.

        Of one that a signal ended it is 128 and the signal's number.
        """
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the first process; that it has ended is not an error."""
        first = self._first()
        if first is not None:
            with suppress(ProcessLookupError):
                os.kill(first, number)

    def kill(self) -> None:
        """End every process at once."""
        # The first process of a pid namespace takes all others with it, and the shell ends when they have ended.
        self.send(signal.SIGKILL)
        self._process.wait()

    def entry(self) -> list[str]:
        """Return the arguments with which `nsenter` enters the namespaces; RehearsalError when nothing runs there."""
        first = self._first()
        if first is None:
            raise RehearsalError(f"{self._name} must be running, it is off; boot it first")
        return ["--target", str(first), "--mount", "--uts", "--ipc", "--net", "--pid"]

    def _first(self) -> int | None:
        if self._process.returncode is not None:
            return None
        try:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None


def name_cgroup(name: str) -> str:
    """Return the cgroup of a node or container; rehearsals that run beside each other have others."""
    return f"{CGROUP}/{Path('/proc/self/ns/pid').stat().st_ino}-{name}"


def run_inside(entry: Sequence[str], argv: Sequence[str], timeout: float) -> "subprocess.CompletedProcess[str]":
    """Run a program in namespaces by the arguments of their entry; after so many seconds it ends with status 137."""
    answer = subprocess.run(
        ["nsenter", *entry, "--", "timeout", "--signal=KILL", str(timeout), *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if answer.returncode < 0:  # nsenter ends by the signal that ended the program
        answer.returncode = 128 - answer.returncode
    return answer


def as_user(argv: Sequence[str], user: str, *, login_shell: bool) -> list[str]:
    """Return the command that runs a program as a user, through a login shell or with a bare environment."""
    if login_shell:
        return ["su", "--login", user, "--command", shlex.join(argv)]
    if user == "root":
        return list(argv)
    home = f"/home/{user}"
    bare = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
    assignments = [f"{name}={value}" for name, value in bare.items()]
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    return [*become, "env", "--ignore-environment", f"--chdir={home}", *assignments, *argv]
