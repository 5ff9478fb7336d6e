"""Nodes of the cluster over SSH, as the login user with the master's user key."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, TypeVar

from deeplearning_command.terminal import RefusedError
from deeplearning_contract.document import ContractError, parse_last_line
from deeplearning_contract.membership import Member
from deeplearning_contract.names import MASTER_HOST
from deeplearning_node.health.findings import last_line
from deeplearning_node.node import LoginUser
from deeplearning_node.node_facts import COMMAND_FILE, InstalledMembership, NodeFacts
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.ssh import ssh_command

T = TypeVar("T")
SSH_FAILED = 255
"""Exit status of `ssh` itself after a failure, and of a program that ends with -1."""
KEPT_BYTES = 1 << 20
LINE_BYTES = 1 << 16

# Sent before the text: the remote shell prints its own status, so that 255 only from `ssh` means no response.
PRINT_STATUS = 'trap \'printf "\\001%s\\n" "$?"\' EXIT\n'
_STATUS = re.compile(rb"\x01(\d{1,3})\n")


@dataclass(frozen=True)
class HostResult:
    """Result of a text on one host."""

    host: str
    status: int | None  # None when the host did not respond in time
    output: str  # Standard output and error in order; the last mebibyte
    cause: str = ""  # Reason for a missing status; else empty

    def read(self, read: Callable[[dict[str, Any]], T]) -> T | str:
        """Read the JSON object that a subcommand printed last; return the cause of a failure."""
        if self.status is None:
            return self.cause
        try:
            document = parse_last_line(self.output, "an object")
        except ContractError:
            return last_line(self.output) or f"its command ended with status {self.status}"
        try:
            return read(document)
        except ContractError as error:
            return str(error)


@dataclass(frozen=True)
class Remote:
    """Access to every node of the cluster, from its master; root switches to the login user first."""

    facts: NodeFacts
    membership: InstalledMembership
    user: LoginUser
    programs: Programs
    is_root: bool
    _running: "set[subprocess.Popen[bytes]]" = field(default_factory=set, compare=False)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the nodes, master first."""
        return tuple(host for host, _ in self.membership.members)

    def find(self, host: str) -> Member:
        """Return the member of a name, an instance id or an address; RefusedError for an unknown one."""
        for rank, (name, member) in enumerate(self.membership.members):
            if host in {name, member.instance_id, member.address} or (rank == 0 and host == MASTER_HOST):
                return member
        raise RefusedError(f"host must be one of `deeplearning hosts`, got {host!r}")

    def choose(self, names: str | None) -> tuple[str, ...]:
        """Return the hosts that `--hosts` names, each once; all for None. RefusedError for unknown names."""
        if names is None:
            return self.hosts
        hosts = tuple(dict.fromkeys(filter(None, (name.strip() for name in names.split(",")))))
        if not hosts:
            raise RefusedError(f"--hosts must name hosts separated by commas, got {names!r}; see: deeplearning hosts")
        for host in hosts:
            self.find(host)
        return hosts

    def command(self, host: str, shell_text: str, *, tty: bool = False) -> list[str]:
        """Return the command line that runs a text in the login user's shell on one host."""
        address = self.find(host).address
        return ssh_command(self.user, address, shell_text, is_root=self.is_root, has_terminal=tty)

    def ask(self, argv: Sequence[str], read: Callable[[dict[str, Any]], T], *, seconds: float) -> dict[str, T | str]:
        """Run `deeplearning ARGV` on every host; read the JSON object of each, or return the cause of a failure."""
        results = self.run_all(self.hosts, shlex.join([COMMAND_FILE, *argv]), seconds=seconds)
        return {result.host: result.read(read) for result in results}

    def run_all(
        self,
        hosts: Sequence[str],
        shell_text: str,
        *,
        seconds: float,
        at_once: int = 32,
        on_result: Callable[[HostResult], None] | None = None,
        on_line: Callable[[str, str], None] | None = None,
    ) -> list[HostResult]:
        """
        Run a text in the login user's shell on hosts in parallel, and return the results in their order.

        A host that is unknown to `find` is refused before the first connection. After `seconds` a host counts as
        silent, which does not end its processes; an interruption ends the `ssh` of each. `on_result` is called in this
        thread, and `on_line` with host and line, one at a time.
        """
        commands = [self.command(host, PRINT_STATUS + shell_text) for host in hosts]
        lock = threading.Lock()
        ended = threading.Event()

        def report_line(host: str, line: str) -> None:
            with lock:
                if on_line and not ended.is_set():
                    on_line(host, line)

        def run_one(index: int) -> HostResult:
            return self._run(hosts[index], commands[index], seconds, report_line, ended)

        with ThreadPoolExecutor(max(1, at_once), "remote") as pool:
            futures = {pool.submit(run_one, index): index for index in range(len(hosts))}
            found: dict[int, HostResult] = {}
            try:
                for future in as_completed(futures):
                    result = found[futures[future]] = future.result()
                    if on_result:
                        on_result(result)
            except BaseException:
                ended.set()
                for process in list(self._running):
                    kill(process)
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [found[index] for index in range(len(hosts))]

    def _run(
        self,
        host: str,
        command: Sequence[str],
        seconds: float,
        report_line: Callable[[str, str], None],
        ended: threading.Event,
    ) -> HostResult:
        try:
            process = self.programs.start(command, output=subprocess.PIPE)
        except ProgramError as error:
            return HostResult(host, None, "", str(error))
        self._running.add(process)
        if ended.is_set():  # Interrupted between the start and the line above.
            kill(process)
        late = threading.Event()

        def give_up() -> None:
            late.set()
            kill(process)

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            output, own_status = follow(process, lambda line: report_line(host, line))
            status = process.wait()
        finally:
            timer.cancel()
            self._running.discard(process)
        if own_status is not None:
            return HostResult(host, own_status, output)
        if late.is_set():
            return HostResult(host, None, output, f"no response in {seconds:.0f} s")
        if status < 0 or status == SSH_FAILED:
            return HostResult(host, None, output, last_line(output) or f"ssh ended with status {status}")
        return HostResult(host, status, output)


def follow(process: "subprocess.Popen[bytes]", report_line: Callable[[str], None]) -> tuple[str, int | None]:
    """Read a program's lines to the end; return the last of them, and the status that the remote shell printed."""
    kept: deque[bytes] = deque()
    size, status = 0, None
    for line in _read_lines(process):
        found = _STATUS.search(line)
        text = line if found is None else line[: found.start()] + line[found.end() :]
        status = int(found[1]) if found else status
        if not text:
            continue
        report_line(text.decode("utf-8", "replace"))
        kept.append(text)
        size += len(text)
        while size > KEPT_BYTES:
            size -= len(kept.popleft())
    return b"".join(kept).decode("utf-8", "replace"), status


def _read_lines(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    if process.stdout is not None:
        with process.stdout as stream:
            yield from iter(lambda: stream.readline(LINE_BYTES), b"")


def kill(process: "subprocess.Popen[bytes]") -> None:
    """End a program and its children on this node."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
