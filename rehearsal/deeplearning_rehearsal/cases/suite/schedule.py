"""Choice of the case that starts next, by cores, memory and time; plain values in and out."""

from collections.abc import Sequence
from dataclasses import dataclass

from deeplearning_rehearsal.cases.case import Case
from deeplearning_rehearsal.cases.results import Result

_SPARE_MIB = 2048
"""Left for the machine itself."""
_NODE_MIB, _BARE_NODE_MIB, _UNPACKED_NODE_MIB = 1000, 100, 1900
"""Of a node whose image has the software of jobs, of one without any, and of one that unpacks it to its disk."""
_CLOUD_MIB = 700
_UNKNOWN_SECONDS = 60.0
_UNKNOWN_NODES = 4


@dataclass(frozen=True)
class Wanted:
    """
    A case that is to be rehearsed, with estimates of its time and its most memory; `after` names one that must end
    first.
    """

    name: str
    seconds: float
    memory_mib: int
    is_alone: bool = False
    after: str = ""


def estimate(case: Case, last: Result | None) -> Wanted:
    """Return what a case needs: what it took last, or what such a case usually takes."""
    nodes = case.asked_nodes or _UNKNOWN_NODES  # Nodes boot before most failures.
    node_mib = _NODE_MIB if case.environment == "image" else _UNPACKED_NODE_MIB
    usual = {
        "seconds": _UNKNOWN_SECONDS,
        "peak_memory_mib": _CLOUD_MIB + nodes * (node_mib if case.has_software else _BARE_NODE_MIB),
    }
    known = usual | ({} if last is None else {name: last[name] for name in usual if last.get(name)})
    return Wanted(case.name, known["seconds"], int(known["peak_memory_mib"]), case.alone, case.after)


def choose_next(waiting: Sequence[Wanted], running: Sequence[Wanted], jobs: int, free_mib: int) -> Wanted | None:
    """
    Return the case that starts now, the longest that fits, or None if none may; those that run alone come last.

    `free_mib` is the memory that was free when nothing ran.
    """
    if len(running) >= jobs or any(wanted.is_alone for wanted in running):
        return None
    before_others = {wanted.name for wanted in (*waiting, *running)}
    ready = sorted(
        (wanted for wanted in waiting if wanted.after not in before_others),
        key=lambda wanted: (wanted.is_alone, -wanted.seconds, wanted.name),
    )
    if not running:
        return ready[0] if ready else None
    left = free_mib - _SPARE_MIB - sum(wanted.memory_mib for wanted in running)
    return next((wanted for wanted in ready if not wanted.is_alone and wanted.memory_mib <= left), None)


def read_free_mib(meminfo: str) -> int:
    """Return the memory that is available, from the text of `/proc/meminfo`; proc_meminfo(5)."""
    return next(int(line.split()[1]) for line in meminfo.splitlines() if line.startswith("MemAvailable:")) // 1024
