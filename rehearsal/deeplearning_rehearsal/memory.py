"""Measures how much memory the lab takes at most."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL_SECONDS = 1.0
_KIB_PER_MIB = 1024


class MemoryWatch:
    """
    Samples the memory of every process in this pid namespace, and of the files in memory, once a second.

    Shared pages count once (proportional set size). Files in memory, which hold the nodes' disks, count in full.
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self.peak_mib = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        before = _shared_kib()
        while not self._stop.wait(_INTERVAL_SECONDS):
            kib = sum(_proportional_kib(folder) for folder in Path("/proc").glob("[0-9]*"))
            self.peak_mib = max(self.peak_mib, (kib + max(0, _shared_kib() - before)) // _KIB_PER_MIB)


def _proportional_kib(process: Path) -> int:
    try:
        rollup = (process / "smaps_rollup").read_text()
    except OSError:
        return 0  # it ended, or is a kernel thread
    return next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)


def _shared_kib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Shmem:"))
