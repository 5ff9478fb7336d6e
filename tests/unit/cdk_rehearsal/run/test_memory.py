"""Memory that the lab uses, as reported by the kernel."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdk_rehearsal.run.memory import MemoryWatch

TAKEN_MIB = 48
TAKE = f"taken = bytearray(b'x') * ({TAKEN_MIB} << 20); print(flush=True); input()"


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").touch()
    (tmp_path / "99").mkdir()  # a process that ended just now
    return tmp_path


def test_memory_of_processes_is_seen(proc):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", TAKE], **pipes) as child:
        assert child.stdout is not None
        child.stdout.readline()
        (proc / str(child.pid)).symlink_to(f"/proc/{child.pid}")
        with MemoryWatch(Path("/work"), proc) as watch:
            assert TAKEN_MIB <= watch.peak_mib < 2 * TAKEN_MIB
            child.kill()
            child.wait()
            assert watch.peak_mib >= TAKEN_MIB


def test_the_labs_own_files_in_memory_count_once_and_nobody_elses(proc, monkeypatch, tmp_path):
    work = tmp_path / "a case" / "lab"
    escaped = str(work).replace(" ", "\\040")
    (proc / "self" / "mountinfo").write_text(
        f"36 35 0:50 / {escaped} rw,relatime - tmpfs rehearsal rw,mode=755\n"
        f"37 36 0:51 / {escaped}/nodes/i-1/disk rw shared:1 - tmpfs disk rw\n"
        f"38 36 0:51 /x {escaped}/nodes/i-1/again rw - tmpfs disk rw\n"
        f"39 36 0:52 / {escaped}/nodes/i-2/disk rw - tmpfs disk rw\n"
        f"40 36 0:53 / {escaped}/nodes/i-1/root rw - overlay overlay rw\n"
        f"41 35 0:54 / {tmp_path}/another/lab rw - tmpfs rehearsal rw\n"
        "42 1 0:26 / /dev/shm rw - tmpfs tmpfs rw\n"
    )
    used = {work: 7, work / "nodes/i-1/disk": 2, work / "nodes/i-1/again": 2}

    def statvfs(path):
        if path == work / "nodes/i-2/disk":
            raise FileNotFoundError(path)  # unmounted just now
        return SimpleNamespace(f_blocks=100, f_bfree=100 - used[path], f_frsize=1 << 20)

    monkeypatch.setattr("cdk_rehearsal.run.memory.os.statvfs", statvfs)
    with MemoryWatch(work, proc) as watch:
        pass
    assert watch.peak_mib == 9
