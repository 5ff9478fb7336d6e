"""
Processes of runs on one node: those whose environment names the run, and no others.

A node may run another Python program of the same user. Every child of a rank inherits the mark in the environment, even
one that left its process group and session.
"""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deeplearning_jobs.plan.job import JOB_VARIABLE
from deeplearning_node.deadline import Clock, Deadline

GRACE_SECONDS = 10.0
KILL_SECONDS = 5.0
POLL_SECONDS = 0.1
PROC = Path("/proc")


@dataclass(frozen=True)
class EndedJob:
    """Result of ending runs: processes that got a signal, processes among them that got KILL, ids of remaining ones."""

    count: int
    killed: int
    left: tuple[int, ...]


def find_processes(proc: Path = PROC) -> dict[int, str]:
    """Return process id -> run, `<job>/<k>`, for processes that this user may read; not this one and its ancestors."""
    own = _find_ancestors(proc)
    found = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit() or int(folder.name) in own:
            continue
        mark = _read_mark(folder)
        if mark:
            found[int(folder.name)] = mark
    return found


def end_processes(
    is_meant: Callable[[str], bool],
    clock: Clock,
    grace_seconds: float = GRACE_SECONDS,
    find: Callable[[], Mapping[int, str]] = find_processes,
) -> EndedJob:
    """End the processes of the selected runs with TERM, and with KILL those that remain after the grace period."""
    terminated: set[int] = set()
    killed: set[int] = set()
    for signal_number, seconds, sent in (
        (signal.SIGTERM, grace_seconds, terminated),
        (signal.SIGKILL, KILL_SECONDS, killed),
    ):
        deadline = Deadline.after(clock, seconds)
        while True:
            # List them again each time: a launcher may have started another rank.
            present = {process for process, mark in find().items() if is_meant(mark)}
            if not present:
                return EndedJob(len(terminated | killed), len(killed), ())
            for process in present - sent:
                _send(process, signal_number)
            sent.update(present)
            if deadline.is_over:
                break
            deadline.pause(POLL_SECONDS)
    return EndedJob(len(terminated | killed), len(killed), tuple(sorted(present)))


def _send(process: int, signal_number: int) -> None:
    try:
        os.kill(process, signal_number)
    except (ProcessLookupError, PermissionError):
        return


def _read_mark(folder: Path) -> str:
    """Return the run of a process; empty for one that has ended, and for a kernel's, which have no environment."""
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = f"{JOB_VARIABLE}=".encode()
    return next((word[len(prefix) :].decode("utf-8", "replace") for word in variables if word.startswith(prefix)), "")


def _find_ancestors(proc: Path) -> set[int]:
    found: set[int] = set()
    process = os.getpid()
    while process > 0 and process not in found:
        found.add(process)
        try:
            process = int((proc / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # Another user's, or it has ended.
            break
    return found
