"""Interruptions at any moment: an environment that counts as complete is complete, and the next run succeeds."""

import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_node.provision_status import BOOT_FILE
from deeplearning_provision import disk
from deeplearning_provision.environments import archive as environment_archive
from deeplearning_provision.environments import flow as environment_flow
from deeplearning_provision.environments import store as environment_store
from deeplearning_provision.environments.archive import DamagedArchiveError, pack, unpack, verify
from deeplearning_provision.environments.flow import Flow
from deeplearning_provision.environments.recipe import Recipe
from deeplearning_provision.environments.site import BuildSite
from deeplearning_provision.environments.store import ARCHIVE, COMPLETE, Manifest, find_installed, find_kept
from deeplearning_provision.status import Status
from deeplearning_provision.steps import ProvisionFailure
from tests.unit.deeplearning_provision.data.test_any_interruption import Interruption, Schedule
from tests.unit.deeplearning_provision.data_lab import make_tar, read_tree
from tests.unit.deeplearning_provision.environment_lab import LookingClock, StopWaiting, make_facts

RECIPE = Recipe("requirements", "aa", "linux-x86_64", "3.12")
TREE = {
    "bin": ("folder",),
    "bin/python": ("link", "/usr/bin/python3"),
    "bin/tool": ("file", b"#!/bin/sh\n", True),
    "lib": ("folder",),
    "lib/module.py": ("file", b"x = 1\n" * 5000, False),
    "lib64": ("link", "lib"),
}
MOMENTS = (
    (environment_archive, "_write"),
    (environment_archive, "_add"),
    (environment_store, "write_file"),
    (Path, "rename"),
    (Path, "mkdir"),
    (shutil, "rmtree"),
)


def plant(folder, tree=TREE):
    for name, (kind, *what) in tree.items():
        path = folder / name
        if kind == "folder":
            path.mkdir(parents=True)
        elif kind == "link":
            path.symlink_to(what[0])
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(what[0])
            path.chmod(0o755 if what[1] else 0o644)


class Lab:
    """A master and a worker whose environment is made in no time."""

    def __init__(self, folder, patch):
        self.folder = folder
        self.builds = 0
        (folder / "shared").mkdir()
        patch.setattr(environment_flow, "build_environment", self.build)
        patch.setattr(Flow, "_import_frameworks", lambda *_: None)
        patch.setattr("deeplearning_node.atomic_file.os.fsync", lambda _: None)

    def build(self, site, _interpreter, recipe):
        self.builds += 1
        folder = site.local / "key"
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            plant(folder)
            manifest = Manifest("key", {}, ("a==1",), site.facts.instance_id, 1.0)
            manifest.write(folder)
        return Manifest.read(folder)

    def flow(self, number, *, clock=None, is_thorough=False, instance=None):
        root = self.folder / f"node{instance or number}"
        facts = make_facts(number, EnvironmentSettings("requirements"))
        facts = replace(facts, instance_id=instance or facts.instance_id)
        if not root.exists():
            (root / "mnt").mkdir(parents=True)
            (root / "mnt/efs").symlink_to(self.folder / "shared")
            boot = root / BOOT_FILE.lstrip("/")
            boot.parent.mkdir(parents=True)
            boot.write_text("boot-1\n")
        clock = clock or LookingClock()
        status = Status(root, clock)
        status._write = lambda: None
        site = BuildSite(facts, status, root, None, clock, is_thorough)
        site.local.mkdir(parents=True, exist_ok=True)
        return site, Flow(site, None, RECIPE)

    @property
    def kept(self):
        return self.folder / "shared/.deeplearning/environments"


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


def check(lab, sites):
    """Check that everything that counts as complete is complete."""
    kept = find_kept(lab.kept, "key")
    if kept:
        verify(lab.kept / "key" / ARCHIVE, kept.archive, lambda _: None)
    for site in sites:
        if find_installed(site.local, RECIPE.digest, site.boot):
            found = read_tree(site.local / "key")
            del found[COMPLETE]
            assert found == TREE


def run_until(schedule, left, flow):
    schedule.left = left
    try:
        return flow.run()
    except Interruption:
        return ""
    finally:
        schedule.left = None


@pytest.mark.parametrize("is_worker", [False, True], ids=["master", "worker"])
def test_a_node_that_ends_at_any_moment_leaves_nothing_that_counts_and_goes_on(tmp_path, is_worker):
    ended = 0
    for left in range(60):
        folder = tmp_path / str(left)
        folder.mkdir()
        schedule = Schedule()
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in MOMENTS:
                schedule.watch(patch, owner, name)
            lab = Lab(folder, patch)
            master, flow = lab.flow(0)
            if is_worker:
                flow.run()
            site, flow = lab.flow(1) if is_worker else (master, flow)
            ended += not run_until(schedule, left, flow)
            check(lab, [master, site])
            _, again = lab.flow(1) if is_worker else lab.flow(0)
            again.run()
            check(lab, [master, site])
            assert find_installed(site.local, RECIPE.digest, site.boot)
            assert find_kept(lab.kept, "key")
            assert [path.name for path in lab.kept.iterdir() if ".making" in path.name] == []
            assert [path.name for path in site.local.iterdir() if ".making" in path.name] == []
        shutil.rmtree(folder)
    assert 5 < ended < 60  # Some moments were met, and the last came after the end.


def test_a_master_that_has_it_packs_it_again_instead_of_building(lab):
    _, flow = lab.flow(0)
    flow.run()
    shutil.rmtree(lab.kept)
    _, flow = lab.flow(0)
    assert flow.run() == "1 package; already installed"
    assert lab.builds == 1
    worker, flow = lab.flow(1)
    flow.run()
    check(lab, [worker])


def harm(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_thorough_master_finds_and_rebuilds_a_damaged_archive(lab):
    _, flow = lab.flow(0)
    flow.run()
    harm(lab.kept / "key" / ARCHIVE)
    _, flow = lab.flow(0)
    flow.run()
    with pytest.raises(DamagedArchiveError, match="sha256 must be"):
        check(lab, [])
    _, flow = lab.flow(0, is_thorough=True)
    flow.run()
    check(lab, [])


def test_a_new_master_that_unpacks_a_damaged_archive_builds(lab):
    _, flow = lab.flow(0)
    flow.run()
    harm(lab.kept / "key" / ARCHIVE)
    site, flow = lab.flow(0, instance="i-2222")
    assert flow.run().startswith("1 package; built here")
    check(lab, [site])


def test_an_environment_that_was_not_on_the_disk_when_the_node_crashed_does_not_count(lab):
    site, flow = lab.flow(0)
    flow.run()
    boot = site.root / BOOT_FILE.lstrip("/")
    boot.write_text("boot-2\n")
    assert find_installed(site.local, RECIPE.digest, site.boot) is None
    boot.write_text("boot-1\n")
    flow.make_lasting()
    boot.write_text("boot-2\n")
    assert find_installed(site.local, RECIPE.digest, site.boot)


class Room:
    """Result of `statvfs` for a disk with a given number of free bytes and inodes."""

    f_frsize, f_blocks, f_files = 1, 1, 1

    def __init__(self, free, inodes=10**6):
        self.f_bavail, self.f_favail = free, inodes


SPACE = r"the environment: 256\.0 MiB must be free on .* got 10 B"


@pytest.mark.parametrize(
    ("number", "room", "words"),
    [
        (0, Room(10), (SPACE, "free space on the shared file system")),
        (1, Room(10), (SPACE, "a larger workers.volume_size")),
        (1, Room(10**12, 2003), ("2006 inodes must be free", "a larger workers.volume_size")),
    ],
)
def test_a_disk_that_is_too_small_is_reported_before_anything_is_written(lab, monkeypatch, number, room, words):
    if number:
        lab.flow(0)[1].run()
    site, flow = lab.flow(number)
    name, (message, remedy) = "opt" if number else "shared", words
    monkeypatch.setattr(disk, "read_room", lambda folder: room if name in str(folder.resolve()) else Room(10**12))
    with pytest.raises(ProvisionFailure, match=message) as caught:
        flow.run()
    assert remedy in caught.value.remedy
    assert caught.value.is_final
    assert number == 0 or list(site.local.iterdir()) == []
    assert ".making" not in str(list(lab.kept.iterdir()))


def test_a_disk_that_becomes_full_is_reported_with_the_remedy(lab, monkeypatch):
    lab.flow(0)[1].run()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(environment_archive, "_write", refuse)
    site, flow = lab.flow(1)
    with pytest.raises(ProvisionFailure, match="no space is left") as caught:
        flow.run()
    assert "larger workers.volume_size" in caught.value.remedy
    assert list(site.local.iterdir()) == []


def test_a_worker_says_what_the_master_is_at(lab):
    master, _ = lab.flow(0)
    master.write_claim(digest=RECIPE.digest, recipe={}, instance="i-1", failure="", doing="")
    master.report("compiling Horovod", 100, "%")
    worker, flow = lab.flow(1)
    with pytest.raises(StopWaiting):
        flow.run()
    told = worker.status.get("environment").detail
    assert told == "waiting for the master, i-1, to make it: compiling Horovod"


def test_an_archive_keeps_what_python_looks_at_and_belongs_to_who_unpacks_it(tmp_path):
    plant(tmp_path / "in")
    os.utime(tmp_path / "in/lib/module.py", (1_000_000_000, 1_000_000_000))
    os.link(tmp_path / "in/lib/module.py", tmp_path / "in/lib/second.py")
    (tmp_path / "in/bin/tool").chmod(0o4777)
    (tmp_path / "in" / COMPLETE).touch()
    os.mkfifo(tmp_path / "in/pipe")
    made = pack(tmp_path / "in", tmp_path / "archive", COMPLETE, lambda _: None)
    seen = []
    unpack(tmp_path / "archive", made, tmp_path / "out", seen.append)
    assert read_tree(tmp_path / "out") == {**TREE, "lib/second.py": TREE["lib/module.py"]}
    assert (tmp_path / "out/lib/module.py").stat().st_mtime == 1_000_000_000
    assert stat.S_IMODE((tmp_path / "out/bin/tool").stat().st_mode) == 0o755
    assert (tmp_path / "out/bin/tool").stat().st_uid == os.geteuid()
    assert seen[-1] == made.size
    assert made.files == len(TREE) + 1
    assert made.unpacked_bytes == 4096 + 2 * 32768


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", ("file", b"x", False))],
        [("/tmp/out", ("file", b"x", False))],
        [("a", ("link", "/tmp")), ("a/b", ("file", b"x", False))],
        [("a", ("link", ".")), ("a/b", ("file", b"x", False))],
        [("a", ("file", b"x", False)), ("a", ("file", b"y", False))],
        [("a", ("link", "/tmp/x")), ("a", ("file", b"y", False))],
    ],
)
def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path, entries):
    data = make_tar(entries)
    (tmp_path / "archive").write_bytes(data)
    whole = environment_archive.Archive("0" * 64, len(data), 0, 1)
    with pytest.raises(DamagedArchiveError, match=r"cannot be unpacked: (a name|an entry) must"):
        unpack(tmp_path / "archive", whole, tmp_path / "folder" / "out", lambda _: None)
    assert {path.name for path in tmp_path.iterdir()} == {"archive", "folder"}
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"out"}
