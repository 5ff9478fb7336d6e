"""Peak memory of the lab."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Self

_INTERVAL_SECONDS = 10.0
_KIB_PER_MIB = 1024
_BYTES_PER_KIB = 1024


class MemoryWatch:
    """
    Samples the memory of every process in this pid namespace, and of the lab's files, every ten seconds and when the
    peak is read.

    Shared pages count once (proportional set size), files in memory below the lab's folder, which hold disks, in full.
    Another rehearsal on this machine is not counted.
    """

    def __init__(self, work: Path, proc: Path = Path("/proc")) -> None:
        self._work = work
        self._proc = proc
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self._samples_mib: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak_mib(self) -> int:
        """The most memory of all samples, one of now among them."""
        self._sample()
        return max(self._samples_mib)

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            self._sample()

    def _sample(self) -> None:
        processes = sum(_proportional_kib(folder) for folder in self._proc.glob("[0-9]*"))
        files = self._read_files_kib()
        self._samples_mib.append((processes + files) // _KIB_PER_MIB)

    def _read_files_kib(self) -> int:
        """Return what the file systems in memory hold; proc_pid_mountinfo(5) has the fields."""
        used = {}
        for line in (self._proc / "self/mountinfo").read_text().splitlines():
            mount, _, file_system = line.partition(" - ")
            _, _, device, _, point, *_ = mount.split()
            folder = Path(point.replace("\\040", " "))
            if file_system.startswith("tmpfs ") and folder.is_relative_to(self._work):
                with contextlib.suppress(OSError):  # it was unmounted just now
                    status = os.statvfs(folder)
                    used[device] = (status.f_blocks - status.f_bfree) * status.f_frsize // _BYTES_PER_KIB
        return sum(used.values())


def _proportional_kib(process: Path) -> int:
    try:
        rollup = (process / "smaps_rollup").read_text()
    except OSError:
        return 0  # it ended, or is a kernel thread
    return next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
