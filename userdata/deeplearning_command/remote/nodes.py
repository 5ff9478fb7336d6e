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
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from deeplearning_command.terminal import RefusedError
from deeplearning_contract.document import ContractError, parse_last_line
from deeplearning_contract.membership import Member
from deeplearning_contract.names import MASTER_HOST
from deeplearning_node.health.findings import last_line
from deeplearning_node.node import LoginUser
from deeplearning_node.node_facts import COMMAND_FILE, InstalledMembership, NodeFacts
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.signals import hold_stops
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
        on_break: Callable[[], None] | None = None,
    ) -> list[HostResult]:
        """
        Run a text in the login user's shell on hosts in parallel, and return the results in their order.

        A host that is unknown to `find` is refused before the first connection. After `seconds` a host counts as
        silent, which does not end its processes. `on_result` is called in this thread, and `on_line` with host and
        line, one at a time.

        An interruption, or an error of a callback, ends the `ssh` of each host, whenever it comes; then `on_break` is
        called, which no further interruption breaks off. KeyboardInterrupt is raised after it, and a signal without a
        handler ends this process.
        """
        commands = [self.command(host, PRINT_STATUS + shell_text) for host in hosts]
        connections = _Connections(self.programs, seconds, on_line)
        done: SimpleQueue[Future[HostResult]] = SimpleQueue()
        interruption: Future[HostResult] = Future()
        interruption.set_exception(KeyboardInterrupt())
        found: dict[Future[HostResult], HostResult] = {}
        with hold_stops(lambda: done.put(interruption)):
            pool = ThreadPoolExecutor(max(1, at_once), "remote")
            try:
                futures = [pool.submit(connections.run, *each) for each in zip(hosts, commands, strict=True)]
                for future in futures:
                    future.add_done_callback(done.put)
                while len(found) < len(futures):
                    ended = done.get()
                    found[ended] = ended.result()
                    if on_result:
                        on_result(found[ended])
            except BaseException:
                connections.end()
                if on_break:
                    on_break()
                raise
            finally:
                # The threads have no work left. One may still write to a reader that has stopped to read.
                pool.shutdown(wait=False, cancel_futures=True)
        return [found[future] for future in futures]


class _Connections:
    """The `ssh` of each host; after `end` none runs, and none is started."""

    def __init__(self, programs: Programs, seconds: float, on_line: Callable[[str, str], None] | None) -> None:
        self._programs, self._seconds, self._on_line = programs, seconds, on_line
        self._starting, self._printing = threading.Lock(), threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._has_ended = False

    def end(self) -> None:
        """End all of them; none is left on return."""
        with self._starting:
            self._has_ended = True
            running = list(self._running)
        for process in running:
            kill(process)
        for process in running:
            process.wait()

    def run(self, host: str, command: Sequence[str]) -> HostResult:
        """Run a command line for a host to its end."""
        try:
            with self._starting:  # Whoever ends them waits until this one is known.
                if self._has_ended:
                    return HostResult(host, None, "", "interrupted")
                process = self._programs.start(command, output=subprocess.PIPE)
                self._running.add(process)
        except ProgramError as error:
            return HostResult(host, None, "", str(error))
        late = threading.Event()

        def give_up() -> None:
            late.set()
            kill(process)

        timer = threading.Timer(self._seconds, give_up)
        timer.start()
        try:
            output, own_status = follow(process, lambda line: self._report(host, line))
            status = process.wait()
        finally:
            timer.cancel()
        self._running.discard(process)  # After an error `end` ends it.
        if own_status is not None:
            return HostResult(host, own_status, output)
        if late.is_set():
            return HostResult(host, None, output, f"no response in {self._seconds:.0f} s")
        if status < 0 or status == SSH_FAILED:
            return HostResult(host, None, output, last_line(output) or f"ssh ended with status {status}")
        return HostResult(host, status, output)

    def _report(self, host: str, line: str) -> None:
        with self._printing:
            if self._on_line and not self._has_ended:
                self._on_line(host, line)


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
