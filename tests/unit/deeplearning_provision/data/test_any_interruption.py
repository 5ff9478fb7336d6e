"""Interruptions at any moment, of any tree in any format: the staged result is the tree, nothing else."""

import contextlib
import hashlib
import itertools
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeplearning_contract.setting_parts import DataSettings
from deeplearning_provision.archives import extraction
from deeplearning_provision.archives.reader import find_format
from deeplearning_provision.archives.tree_writer import TreeWriter
from deeplearning_provision.data import target as targets
from deeplearning_provision.data.staging import Staging
from deeplearning_provision.data.target import DataTarget
from deeplearning_provision.s3 import ObjectStore, StoredObject, TransferSettings
from deeplearning_provision.status import Status
from tests.unit.deeplearning_provision.data_lab import BriefClock, make_archive, read_tree

NAMES = st.sampled_from(["a", "b", "c", "ä", ".hidden", "with space", "-", "n" * 90])
CONTENTS = st.sampled_from([b"", b"x", b"content" * 40, bytes(range(256)) * 9])
EXAMPLES = 500 if os.environ.get("DEEPLEARNING_DEEP") else 25
KINDS = ("tar", "tar.gz", "zip", "prefix")


class Interruption(BaseException):
    """The process ends here."""


class Schedule:
    """Ends the process at the n-th moment at which something was written or fetched."""

    def __init__(self):
        self.left = None
        self.lock = threading.Lock()

    def tick(self):
        with self.lock:
            if self.left is None:
                return
            self.left -= 1
            if self.left < 0:
                raise Interruption

    def watch(self, patch, owner, name, *, is_before=True):
        """Interrupt before or after each call of a function."""
        real = getattr(owner, name)

        def call(*args, **options):
            if is_before:
                self.tick()
            found = real(*args, **options)
            if not is_before:
                self.tick()
            return found

        patch.setattr(owner, name, call)


class MemoryStore(ObjectStore):
    """S3 in memory, as the staging sees it."""

    def __init__(self, objects, schedule):
        super().__init__("", BriefClock(), TransferSettings(500, 2))
        self.objects = objects
        self.schedule = schedule

    def _describe(self, key):
        content = self.objects[key]
        etag = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return StoredObject("bucket", key, len(content), f'"{etag}"', modified=1, is_etag_md5=True)

    def describe(self, _bucket, key):
        return self._describe(key)

    def list_pages(self, _bucket, prefix):
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        yield from ([self._describe(key) for key in keys[start : start + 3]] for start in range(0, len(keys), 3))

    def read_text(self, _bucket, _key):
        return ""

    def read_blocks(self, item, start, end):
        assert item.etag == self._describe(item.key).etag
        for position in range(start, end, 200):
            self.schedule.tick()
            yield self.objects[item.key][position : min(position + 200, end)]


@st.composite
def trees(draw):
    """Files in folders, with links and programs: as `read_tree` has them."""
    tree = {}
    paths = draw(st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=12))
    for parts in paths:
        name = "/".join(parts)
        above = ["/".join(parts[:end]) for end in range(1, len(parts))]
        if name in tree or any(tree.get(folder, ("folder",))[0] != "folder" for folder in above):
            continue
        for folder in above:
            tree.setdefault(folder, ("folder",))
        kind = draw(st.sampled_from(["file", "file", "file", "program", "folder", "link"]))
        if kind == "folder":
            tree[name] = ("folder",)
        elif kind == "link":
            tree[name] = ("link", draw(st.sampled_from(["a", "./b", "../" * (len(parts) - 1) + "c", "nothing"])))
        else:
            tree[name] = ("file", draw(CONTENTS), kind == "program")
    return tree


def make_objects(kind, tree):
    """Return the objects of a source, its key, and what must come of it."""
    if kind != "prefix":
        return {f"set.{kind}": make_archive(kind, tree)}, f"set.{kind}", tree
    kept = {name: entry for name, entry in tree.items() if entry[0] != "link"}
    kept = {name: (entry[0], entry[1], False) if entry[0] == "file" else entry for name, entry in kept.items()}
    files = {f"set/{name}": entry[1] for name, entry in kept.items() if entry[0] == "file"}
    folders = {f"set/{name}/": b"" for name, entry in kept.items() if entry[0] == "folder"}
    return {**files, **folders}, "set/", kept


@pytest.fixture
def schedule():
    return Schedule()


@contextlib.contextmanager
def watched(schedule):
    """Put a moment of interruption before and after everything that leaves a trace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(targets, "sync_disk", lambda _: None)
        for owner, name in (
            (MemoryStore, "fetch"),
            (TreeWriter, "write_file"),
            (TreeWriter, "make_folder"),
            (TreeWriter, "make_link"),
            (DataTarget, "write_note"),
            (DataTarget, "remove_note"),
            (targets, "remove_tree"),
            (targets, "sync_disk"),
            (os, "utime"),
            (Path, "mkdir"),
            (Path, "symlink_to"),
            (Path, "rename"),
        ):
            schedule.watch(patch, owner, name)
            schedule.watch(patch, owner, name, is_before=False)
        patch.setattr(extraction, "PENDING_FILES", 2)
        patch.setattr(extraction, "SMALL_BYTES", 1000)
        yield patch


def stage_once(folder, key, objects, schedule, left):
    """Run the staging of a master that is interrupted at a moment; return whether it came to its end."""
    schedule.left = None
    clock = BriefClock()
    root = folder / "node"
    status = Status(root, clock)
    status._write = lambda: None
    source = DataSettings("set", "bucket", key, "efs")
    target = DataTarget(folder / "efs", "set")
    staging = Staging(source, target, MemoryStore(objects, schedule), status, clock, "i-1", root / "listing")
    schedule.left = left
    try:
        staging.run()
    except Interruption:
        return False
    finally:
        schedule.left = None
    return True


def check_schedule(kind, tree, lefts, replaced):
    """
    Stage a source under a schedule of interruptions; at every moment the target is whole, old or absent.

    Return whether there was an interruption.
    """
    schedule = Schedule()
    folder = Path(tempfile.mkdtemp(prefix="staging."))
    try:
        with watched(schedule):
            old = {"before": ("file", b"old", False)}
            if replaced:
                objects, key, old = make_objects(kind, old)
                assert stage_once(folder, key, objects, schedule, None)
            objects, key, expected = make_objects(kind, tree)
            target = folder / "efs/data/set"
            for left in [*lefts, None]:
                is_whole = stage_once(folder, key, objects, schedule, left)
                if target.exists():
                    assert read_tree(target) in ([expected, old] if replaced and not is_whole else [expected])
                if is_whole:
                    break
            assert is_whole
            assert read_tree(target) == expected
            check_leftovers(folder / "efs/data")
            return left is None
    finally:
        shutil.rmtree(folder)


def check_leftovers(data):
    """Nothing lies beside the link, the folder to which it leads, and its marker."""
    published = (data / "set").readlink().name
    assert sorted(path.name for path in data.iterdir()) == [".set", "set"]
    assert sorted(path.name for path in (data / ".set").iterdir()) == [published, f"{published}.json"]


@pytest.mark.parametrize("kind", KINDS)
def test_any_tree_survives_any_interruptions(kind):
    assert kind == "prefix" or find_format(f"set.{kind}") == kind

    @settings(max_examples=EXAMPLES)
    @given(trees(), st.lists(st.integers(0, 60), max_size=5), st.booleans())
    def check(tree, lefts, replaced):
        if kind == "prefix" and not any(entry[0] == "file" for entry in tree.values()):
            tree = {**tree, "file": ("file", b"1", False)}
        check_schedule(kind, tree, lefts, replaced)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_changes_between_interruptions_leaves_nothing_of_its_other_content(kind):
    @settings(max_examples=EXAMPLES)
    @given(trees(), trees(), st.lists(st.tuples(st.booleans(), st.integers(5, 60)), min_size=1, max_size=6))
    def check(tree, other, history):
        schedule, folder = Schedule(), Path(tempfile.mkdtemp(prefix="staging."))
        try:
            with watched(schedule):
                versions = [make_objects(kind, {**found, "file": ("file", b"1", False)}) for found in (tree, other)]
                for is_other, left in [*history, (False, None)]:
                    objects, key, expected = versions[is_other]
                    stage_once(folder, key, objects, schedule, left)
                assert read_tree(folder / "efs/data/set") == expected
                check_leftovers(folder / "efs/data")
        finally:
            shutil.rmtree(folder)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_every_single_moment_of_one_staging_survives_an_interruption(kind):
    tree = {"a": ("folder",), "a/b": ("file", b"content" * 40, True), "c": ("file", b"x", False), "d": ("link", "c")}
    moments = itertools.count(0, 1 if kind == "tar" else 4)
    assert next(left for left in moments if not check_schedule(kind, tree, [left], replaced=True)) > 40
