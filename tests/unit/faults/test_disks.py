"""Disks that are full or read-only, and writers that die: a reader sees the old bytes or the new ones, never half."""

import contextlib
import errno
import os
import resource
import subprocess
from pathlib import Path

import pytest

from deeplearning_node import atomic_file
from deeplearning_node.atomic_file import BEGIN, END, write_block, write_file
from deeplearning_node.deadline import setup_deadline

OLD, NEW = "old\n" * 10, "new\n" * 100_000


@contextlib.contextmanager
def mounted(folder, *options):
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def limited(folder):
    """Without root: files end after 16 KiB, and the error is another."""
    folder.mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, before[1]))
    try:
        yield folder
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def closed(folder):
    """Without root: a folder that nobody may write to."""
    folder.chmod(0o555)
    try:
        yield folder
    finally:
        folder.chmod(0o755)


def names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def full_disk(tmp_path):
    """A disk of 64 KiB where this may be mounted, and else a limit that ends files as early."""
    is_root = os.geteuid() == 0
    with mounted(tmp_path / "disk", "-o", "size=64k") if is_root else limited(tmp_path / "disk") as folder:
        yield folder, {errno.ENOSPC} if is_root else {errno.EFBIG}


@pytest.fixture
def read_only_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "file").write_text(OLD)
    (folder / "with").mkdir()
    if os.geteuid() != 0:
        with closed(folder):
            yield folder
        return
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.fault(55)
@pytest.mark.parametrize("write", [write_file, write_block])
def test_a_full_disk_is_named_with_the_path_and_the_old_file_stays(full_disk, write):
    folder, numbers = full_disk
    path = folder / "file"
    path.write_text(OLD)
    with pytest.raises(OSError, match=f"cannot write {path}: .*; free or remount its disk") as raised:
        write(path, NEW)
    assert raised.value.errno in numbers
    assert path.read_text() == OLD
    assert names(folder) == ["file"], "what was begun is gone, since it fills the disk further"
    assert write_file(path, "short\n"), "and there is room for what fits"


@pytest.mark.fault(55)
def test_a_disk_without_room_for_another_file_is_named_too(tmp_path):
    """Inodes run out before bytes do; without root nothing limits them, so the failure is that of the folder."""
    if os.geteuid() == 0:
        with mounted(tmp_path / "disk", "-o", "nr_inodes=3") as folder:
            (folder / "file").write_text(OLD)
            (folder / "other").write_text(OLD)
            with pytest.raises(OSError, match=f"cannot write {folder / 'file'}: No space left on device"):
                write_file(folder / "file", NEW)
            assert (folder / "file").read_text() == OLD
        return
    (tmp_path / "disk").write_text("no folder")
    with pytest.raises(OSError, match=f"cannot write {tmp_path / 'disk/file'}"):
        write_file(tmp_path / "disk" / "file", NEW)


@pytest.mark.fault(55)
@pytest.mark.parametrize("name", ["file", "fresh", "with/folders/between"])
def test_a_read_only_disk_is_named_with_the_path(read_only_disk, name):
    path = read_only_disk / name
    with pytest.raises(OSError, match=f"cannot write {path}: (Read-only|Permission denied)"):
        write_file(path, NEW)
    assert (read_only_disk / "file").read_text() == OLD


@pytest.mark.fault(49, 55)
def test_a_read_only_disk_that_holds_the_right_bytes_already_is_no_failure(read_only_disk):
    assert not write_file(read_only_disk / "file", OLD, (read_only_disk / "file").stat().st_mode & 0o777)


@pytest.mark.fault(33, 55)
@pytest.mark.parametrize("step", ["fchmod", "fsync"])
def test_a_writer_that_dies_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, step):
    def die(*_arguments):
        raise KeyboardInterrupt

    (tmp_path / "file").write_text(OLD)
    monkeypatch.setattr(atomic_file.os, step, die)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "file", NEW)
    monkeypatch.undo()
    assert (tmp_path / "file").read_text() == OLD
    assert names(tmp_path) == ["file"]


@pytest.mark.fault(22)
@pytest.mark.parametrize("text", ["half \ud800 a pair", "\udfff", "a byte \udcff of another writer and \ud83d"])
def test_text_that_no_encoding_has_is_written_and_stays_as_it_is(tmp_path, text):
    path = tmp_path / "file"
    assert write_file(path, text)
    assert b"?" in path.read_bytes()
    assert not write_file(path, text)


@pytest.mark.fault(49)
def test_bytes_of_other_writers_come_back_as_they_were(tmp_path):
    path = tmp_path / "hosts"
    path.write_bytes(b"10.0.0.1 caf\xe9\n")
    write_block(path, "10.0.0.2 worker")
    write_block(path, "10.0.0.2 worker")
    assert path.read_bytes() == f"10.0.0.1 caf\udce9\n{BEGIN}\n10.0.0.2 worker\n{END}\n".encode(
        "utf-8", "surrogateescape"
    )


@pytest.mark.fault(54)
@pytest.mark.parametrize("text", ["", "nan", "inf", "-5.0", "99999999.0", "1e400", "half a nu"])
def test_a_start_file_that_is_torn_or_of_another_boot_begins_anew(tmp_path, clock, text):
    (tmp_path / "started").write_text(text)
    deadline = setup_deadline(clock, tmp_path / "started", 600)
    assert 599 < deadline.remaining <= 600
    assert abs(setup_deadline(clock, tmp_path / "started", 600).at - deadline.at) < 1e-6


@pytest.mark.fault(55)
def test_a_start_file_that_cannot_be_written_is_named(read_only_disk, clock):
    with pytest.raises(OSError, match=r"cannot write .*fresh"):
        setup_deadline(clock, read_only_disk / "fresh", 600)


def test_a_file_that_is_mounted_by_itself_is_written_in_place(tmp_path, monkeypatch):
    """Docker mounts /etc/hosts by itself (its documentation, "Networking overview"); rename(2) refuses with EBUSY."""
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n")
    number = path.stat().st_ino

    def refuse(self, target):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self), None, str(target))

    monkeypatch.setattr(Path, "rename", refuse)
    write_block(path, "10.0.0.1 algo-1")
    assert "127.0.0.1 localhost" in path.read_text()
    assert "10.0.0.1 algo-1" in path.read_text()
    assert path.stat().st_ino == number
    assert [each.name for each in tmp_path.iterdir()] == ["hosts"]
