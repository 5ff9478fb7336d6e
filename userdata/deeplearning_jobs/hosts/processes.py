"""
The processes of a run on one node: those whose environment names it, and no others.

A node may run another python of the same user, which is none of the job's; the mark in the environment goes to every
child of a rank, also to one that left its group and session.
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
LOOK_SECONDS = 0.1
PROC = Path("/proc")


@dataclass(frozen=True)
class EndedJob:
    """
    What ending a run's processes came to.

    Attributes:
        count: Processes that were told to end.
        killed: How many of them had to be killed.
        left: Those that are still there.
    """

    count: int
    killed: int
    left: tuple[int, ...]


def find_processes(proc: Path = PROC) -> dict[int, str]:
    """
    Find the processes of all runs that this user may look at.

    Returns:
        Process id -> the run, `<job>/<k>`; neither this process nor those that started it.
    """
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
    """
    End the processes of runs, with TERM, and with KILL those that stay.

    Args:
        is_meant: Tells whether a run is meant.
        clock: Measures the time.
        grace_seconds: From TERM to KILL.
        find: Where the processes come from.
    """
    told: set[int] = set()
    killed: set[int] = set()
    for signal_number, seconds, sent in (
        (signal.SIGTERM, grace_seconds, told),
        (signal.SIGKILL, KILL_SECONDS, killed),
    ):
        deadline = Deadline.after(clock, seconds)
        while True:
            # Looked for anew each time: a launcher may have started another rank meanwhile.
            present = {process for process, mark in find().items() if is_meant(mark)}
            if not present:
                return EndedJob(len(told | killed), len(killed), ())
            for process in present - sent:
                _send(process, signal_number)
            sent.update(present)
            if deadline.is_over:
                break
            deadline.pause(LOOK_SECONDS)
    return EndedJob(len(told | killed), len(killed), tuple(sorted(present)))


def _send(process: int, signal_number: int) -> None:
    try:
        os.kill(process, signal_number)
    except (ProcessLookupError, PermissionError):
        return


def _read_mark(folder: Path) -> str:
    """Return the mark of a process; a process that has ended, and a kernel's, have no environment."""
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
        except (OSError, ValueError, IndexError):
            break
    return found
