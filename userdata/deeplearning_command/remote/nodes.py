"""Runs a text of the shell on many nodes at once, over SSH, as the login user with the master's user key."""

import os
import pwd
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning_command.remote.ssh_stream import TELL_STATUS, follow, kill
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_contract.membership import Member
from deeplearning_contract.names import MASTER_HOST, NodeRole
from deeplearning_node.health.findings import last_line
from deeplearning_node.node import LoginUser
from deeplearning_node.node_facts import FACTS_FILE, InstalledMembership, NodeFacts
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.ssh_command import ssh_command

NO_ANSWER = 255
"""The status of `ssh` itself when it fails, and of a program that ends with -1."""


@dataclass(frozen=True)
class HostResult:
    """
    How a text ended on one host.

    Attributes:
        host: As the caller named it.
        status: With which it ended; None when the host did not answer or was not asked in time.
        output: Standard output and error in order; the last mebibyte.
        cause: Why there is no status; empty when there is one.
    """

    host: str
    status: int | None
    output: str
    cause: str = ""


@dataclass(frozen=True)
class Remote:
    """
    The way to every node of the cluster, from its master.

    Attributes:
        facts: What this node knows of itself.
        membership: Who is in the cluster.
        user: The login user, whose key opens every node.
        programs: Where `ssh` is.
        is_root: Whether to become the login user first.
    """

    facts: NodeFacts
    membership: InstalledMembership
    user: LoginUser
    programs: Programs
    is_root: bool
    _running: "set[subprocess.Popen[bytes]]" = field(default_factory=set, compare=False)

    @classmethod
    def open(cls, root: Path, programs: Programs) -> "Remote":
        """
        Read who the nodes are; none is asked yet.

        Raises:
            RefusedError: This node or this user cannot ask them.
        """
        facts = read_facts(root)
        if facts.role != NodeRole.MASTER.value:
            raise RefusedError(f"the node must be the master, got a {facts.role}; log in to {MASTER_HOST}")
        try:
            user = find_user(facts.login_user)
            membership = InstalledMembership.read(root)
        except (OSError, ValueError, LookupError) as error:
            raise RefusedError(f"the cluster has not formed yet, read the agent's log: {error}") from error
        if os.geteuid() not in {0, user.user_id}:
            raise RefusedError(f"the user must be {user.name}, whose key opens the nodes; put sudo before the command")
        return cls(facts, membership, user, programs, is_root=os.geteuid() == 0)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes' names, master first."""
        return tuple(host for host, _ in self.membership.members)

    def find(self, host: str) -> Member:
        """
        Return the member of a name, an instance id or an address.

        Raises:
            RefusedError: There is none.
        """
        for rank, (name, member) in enumerate(self.membership.members):
            if host in {name, member.instance_id, member.address} or (rank == 0 and host == MASTER_HOST):
                return member
        raise RefusedError(f"host must be one that `deeplearning hosts` shows, got {host!r}")

    def command(self, host: str, shell_text: str, *, tty: bool = False) -> list[str]:
        """
        Return the program that runs a text in the login user's shell on one host.

        Raises:
            RefusedError: There is no such host.
        """
        address = self.find(host).address
        return ssh_command(self.user, address, shell_text, is_root=self.is_root, has_terminal=tty)

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
        Run a text on hosts, so many at once; an interruption ends the `ssh` of each.

        Args:
            hosts: As `find` takes them.
            shell_text: What the login user's shell runs.
            seconds: After which a host is given up; what runs there is not ended by it.
            at_once: Most connections at the same time.
            on_result: Told each result in this thread, as they come.
            on_line: Told (host, line) as lines come, one at a time.

        Returns:
            A result a host, in the order given.

        Raises:
            RefusedError: There is no such host; none is asked then.
        """
        commands = [self.command(host, TELL_STATUS + shell_text) for host in hosts]
        lock = threading.Lock()
        ended = threading.Event()

        def tell(host: str, line: str) -> None:
            with lock:
                if on_line and not ended.is_set():
                    on_line(host, line)

        def ask(index: int) -> HostResult:
            return self._ask(hosts[index], commands[index], seconds, tell, ended)

        with ThreadPoolExecutor(max(1, at_once), "remote") as pool:
            futures = {pool.submit(ask, index): index for index in range(len(hosts))}
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

    def _ask(
        self,
        host: str,
        command: Sequence[str],
        seconds: float,
        tell: Callable[[str, str], None],
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
            output, told = follow(process, lambda line: tell(host, line))
            status = process.wait()
        finally:
            timer.cancel()
            self._running.discard(process)
        if told is not None:
            return HostResult(host, told, output)
        if late.is_set():
            return HostResult(host, None, output, f"no answer in {seconds:.0f} s")
        if status < 0 or status == NO_ANSWER:
            return HostResult(host, None, output, last_line(output) or f"ssh ended with status {status}")
        return HostResult(host, status, output)


def read_facts(root: Path) -> NodeFacts:
    """
    Read what the node knows of itself.

    Raises:
        RefusedError: The agent has not written it.
    """
    try:
        return NodeFacts.read(root)
    except FileNotFoundError as error:
        raise RefusedError(
            f"the agent has not prepared this node yet, or this machine is no node of a cluster ({FACTS_FILE} is "
            "missing); run the command on a node, and read the agent's log there: journalctl -u deeplearning-agent"
        ) from error
    except (OSError, ValueError) as error:  # ContractError is a ValueError.
        raise RefusedError(f"the agent has not prepared this node yet, read its log: {error}") from error


def find_user(name: str) -> LoginUser:
    """
    Look a user up.

    Raises:
        LookupError: There is none of that name.
    """
    entry = pwd.getpwnam(name)
    return LoginUser(name, entry.pw_uid, entry.pw_gid, entry.pw_dir)
