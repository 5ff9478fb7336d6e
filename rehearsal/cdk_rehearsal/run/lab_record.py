"""
The place of a kept rehearsal: `lab.json` beside its reports, for commands that read it from outside.

The file is removed with the lab. Only SIGKILL of the command leaves it, and then it names namespaces that are gone.
"""

import ctypes
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.machine import make_machine_id

LAB_FILE = "lab.json"
_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of sched.h."""


@dataclass(frozen=True)
class LabRecord:
    """
    A lab that runs.

    Attributes:
        pid: Its first process, as this machine numbers it.
        network: Inode of its network namespace, by which a number that was given to another process is known.
        endpoint: URL of its embedded AWS, inside that namespace.
        access_key_id: The operator's credentials, which open nothing but this lab.
    """

    pid: int
    network: int
    endpoint: str
    region: str
    stack: str
    access_key_id: str
    secret_access_key: str

    def write(self, folder: Path) -> None:
        """Write the file, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{LAB_FILE}.{os.getpid()}"
        unfinished.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        unfinished.replace(folder / LAB_FILE)

    @classmethod
    def read(cls, folder: Path) -> "LabRecord":
        """Read the record of a lab that runs; UnavailableError when there is none, or its lab has ended."""
        file = folder / LAB_FILE
        try:
            record = cls(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise UnavailableError(
                f"no rehearsal is kept in {folder}; run: deeplearning-cdk rehearse --keep"
            ) from error
        except (OSError, ValueError, TypeError) as error:
            raise UnavailableError(
                f"{file} cannot be read: {error}; remove it and rehearse again with --keep"
            ) from error
        if _find_network(record.pid) != record.network:
            raise UnavailableError(f"the rehearsal of {file} has ended; run: deeplearning-cdk rehearse --keep")
        return record

    def enter_network(self) -> None:
        """
        Let this process use the lab's network, and no other; its files and processes stay this machine's.

        UnavailableError when it may not.
        """
        try:
            with Path(f"/proc/{self.pid}/ns/net").open("rb") as namespace:
                _enter(namespace.fileno())
        except OSError as error:
            raise UnavailableError(
                f"the lab's network cannot be entered: {error.strerror}; run it with sudo"
            ) from error

    def find_node(self, instance_id: str) -> int:
        """Return the first process of a node, as this machine numbers it; UnavailableError when there is none."""
        wanted = make_machine_id(instance_id)
        for pid in _find_children(self.pid):
            with suppress(OSError):  # it ended meanwhile
                # Its parent has the node's root, too, but is outside of its pid namespace; proc_pid_status(5).
                is_first = any(re.fullmatch(r"NSpid:.*\t1", line) for line in _read_status(pid))
                if is_first and Path(f"/proc/{pid}/root/etc/machine-id").read_text().strip() == wanted:
                    return pid
        raise UnavailableError(f"node {instance_id} must run, it does not; see: deeplearning-cdk status --rehearsal")


def remove_record(folder: Path) -> None:
    """Remove the file; it need not be there."""
    (folder / LAB_FILE).unlink(missing_ok=True)


def read_network() -> int:
    """Return the inode of this process's network namespace."""
    return Path("/proc/self/ns/net").stat().st_ino


def read_login_user(pid: int) -> str:
    """Return the login user of a node's image."""
    return Path(f"/proc/{pid}/root/usr/lib/lab/login-user").read_text(encoding="utf-8").strip()


def _enter(descriptor: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)  # os.setns is newer than Python 3.11
    if library.setns(descriptor, _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _find_network(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return 0


def _read_status(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def _find_children(pid: int) -> Iterator[int]:
    """Return all processes below one, parents first."""
    waiting = [pid]
    while waiting:
        current = waiting.pop(0)
        with suppress(OSError):
            for task in Path(f"/proc/{current}/task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                yield from children
                waiting += children
