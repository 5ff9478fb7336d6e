"""How much memory the lab takes, as the kernel tells it."""

import subprocess
import sys
from pathlib import Path

import pytest

from cdk_rehearsal.run.memory import MemoryWatch

TAKEN_MIB = 48
TAKE = f"taken = bytearray(b'x') * ({TAKEN_MIB} << 20); print(flush=True); input()"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\nShmem:     2048 kB\n")
    (tmp_path / "99").mkdir()  # a process that ended just now
    return tmp_path


def test_memory_of_processes_is_seen(proc: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", TAKE], **pipes) as child:
        assert child.stdout is not None
        child.stdout.readline()
        (proc / str(child.pid)).symlink_to(f"/proc/{child.pid}")
        with MemoryWatch(proc) as watch:
            pass
        child.kill()
    assert TAKEN_MIB <= watch.peak_mib < 2 * TAKEN_MIB


def test_files_in_memory_count_from_the_beginning_of_the_watch(proc: Path) -> None:
    with MemoryWatch(proc) as watch:
        (proc / "meminfo").write_text(f"Shmem: {2048 + 7 * 1024} kB\n")
    assert watch.peak_mib == 7
