"""Measures how much memory the lab takes at most."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL_SECONDS = 1.0
_KIB_PER_MIB = 1024


class MemoryWatch:
    """
    Samples the memory of every process in this pid namespace, and of the files in memory, once a second and at the end.

    Shared pages count once (proportional set size). Files in memory, which hold the nodes' disks, count in full.

    Args:
        proc: Where the kernel tells of processes. Default: of this pid namespace.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._files_before = self._read_shared_kib()
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
        self._sample()

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            self._sample()

    def _sample(self) -> None:
        processes = sum(_proportional_kib(folder) for folder in self._proc.glob("[0-9]*"))
        files = max(0, self._read_shared_kib() - self._files_before)
        self.peak_mib = max(self.peak_mib, (processes + files) // _KIB_PER_MIB)

    def _read_shared_kib(self) -> int:
        lines = (self._proc / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Shmem:"))


def _proportional_kib(process: Path) -> int:
    try:
        rollup = (process / "smaps_rollup").read_text()
    except OSError:
        return 0  # it ended, or is a kernel thread
    return next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
