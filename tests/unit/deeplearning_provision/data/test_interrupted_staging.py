"""A staging that was interrupted goes on with the next file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import deeplearning_provision
from deeplearning_provision.steps import Outcome
from tests.real_time import GENEROUS_SECONDS
from tests.unit.deeplearning_provision.data_lab import MASTER, SETTINGS, Fault, make_archive, make_tree, read_tree

PACKAGES = Path(deeplearning_provision.__file__).parents[1]
CHILD = """
import json, os, signal, sys
from pathlib import Path
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_provision.data.sources import stage_all
from deeplearning_provision.s3 import ObjectStore, TransferSettings
from deeplearning_provision.status import Status
from deeplearning_provision.archives.tree_writer import TreeWriter
place = json.loads(sys.argv[1])
log = os.open(place["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
written, write, fetch = [], TreeWriter.write_file, ObjectStore.fetch

def note(name):
    os.write(log, (name + "\\n").encode())
    written.append(name)
    if len(written) == place["last"]:
        os.kill(os.getpid(), signal.SIGKILL)

def write_and_note(self, parts, *rest):
    write(self, parts, *rest)
    note("/".join(parts))

def fetch_and_note(self, item, *rest):
    fetch(self, item, *rest)
    if item.key.startswith("images/"):
        note(item.key)

TreeWriter.write_file, ObjectStore.fetch = write_and_note, fetch_and_note
root = Path(place["root"])
status = Status(root, Clock())
programs, settings = Programs(place["programs"]), TransferSettings(**place["settings"])
sys.exit(stage_all(NodeFacts.read(root), status, root, programs, Clock(), settings=settings))
"""


class Child:
    """A staging in a process of its own, which can be killed, or kills itself after so many files."""

    def __init__(self, lab, *sources, last=0):
        lab.facts(MASTER, *sources)
        self.log = lab.directory / "written"
        place = {"root": str(lab.root(MASTER)), "programs": str(lab.programs), "settings": vars(SETTINGS)}
        place |= {"last": last, "log": str(self.log)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(place)],
            env={**os.environ, "PYTHONPATH": str(PACKAGES)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def finish(self):
        """Return its status, what it wrote, and the files that it wrote, and forget them."""
        output, _ = self.process.communicate(timeout=GENEROUS_SECONDS)
        written = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return self.process.returncode, output.decode(), written


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_a_killed_extraction_starts_again_from_the_downloaded_archive(data_lab, kind):
    tree = make_tree(60, 4000)
    data_lab.put(f"set.{kind}", make_archive(kind, tree))
    source = data_lab.source(f"set.{kind}")
    status, output, first = Child(data_lab, source, last=40).finish()
    assert (status, len(first) >= 40) == (-signal.SIGKILL, True), output
    assert not os.path.lexists(data_lab.shared / "data/set")
    data_lab.proxy.served = 0
    status, output, _ = Child(data_lab, source).finish()
    assert status == 0, output
    assert read_tree(data_lab.data().resolve()) == tree
    assert data_lab.proxy.served == 0, "an archive that is there is not fetched again"
    assert data_lab.leftovers() == []


def test_a_killed_prefix_fetches_no_finished_object_again(data_lab):
    for index in range(60):
        data_lab.put(f"images/{index // 10}/{index}", os.urandom(2000))
    source = data_lab.source("images/")
    status, output, first = Child(data_lab, source, last=30).finish()
    assert (status, len(first) >= 30) == (-signal.SIGKILL, True), output
    assert not (data_lab.shared / "data/set").exists()
    status, output, second = Child(data_lab, source).finish()
    assert status == 0, output
    assert len(set(first) & set(second)) <= SETTINGS.threads
    assert len(read_tree(data_lab.data().resolve())) == 66


def test_a_download_resumes_inside_a_part_after_a_broken_connection(data_lab):
    tree = make_tree(20)
    content = make_archive("tar", tree)
    data_lab.put("set.tar", content)
    cuts = iter([1000, 100_000, 50_000, 1])

    def cut(method, path, _limits):
        after = next(cuts, None) if method == "GET" and path.endswith(".tar") else None
        return None if after is None else Fault(cut_after=after)

    data_lab.proxy.decide = cut
    assert data_lab.stage(data_lab.source("set.tar"))[0] == Outcome.DONE
    assert read_tree(data_lab.data().resolve()) == tree
    assert data_lab.proxy.served == len(content), "what came before a break is not fetched again"


def test_an_object_that_changes_during_the_download_is_downloaded_from_the_start(data_lab):
    data_lab.put("set.tar", make_archive("tar", make_tree(20)))
    new = {"new": ("file", os.urandom(600_000), False)}
    changes = iter([make_archive("tar", new)])
    ranges = []

    def change(method, path, _limits):
        if method == "GET" and path.endswith(".tar"):
            ranges.append(path)
            if len(ranges) == 2 and (content := next(changes, None)):
                data_lab.put("set.tar", content)

    data_lab.proxy.decide = change
    assert data_lab.stage(data_lab.source("set.tar"))[0] == Outcome.DONE
    assert read_tree(data_lab.data().resolve()) == new
    assert data_lab.leftovers() == []


def test_an_object_that_never_stays_the_same_is_left_for_later(data_lab):
    def change(method, path, _limits):
        if method == "GET" and path.endswith(".tar"):
            data_lab.put("set.tar", make_archive("tar", {"new": ("file", os.urandom(600_000), False)}))

    data_lab.put("set.tar", make_archive("tar", make_tree(20)))
    data_lab.proxy.decide = change
    outcome, steps = data_lab.stage(data_lab.source("set.tar"))
    assert outcome == Outcome.INTERRUPTED
    assert "s3://training-data/set.tar changed while it was read, 3 times" in steps["data:set"].detail
    assert not data_lab.data().exists()


def test_an_archive_that_the_disk_lost_is_fetched_again(data_lab):
    tree = make_tree(30)
    data_lab.put("set.tar", make_archive("tar", tree))
    source = data_lab.source("set.tar")
    assert Child(data_lab, source, last=5).finish()[0] == -signal.SIGKILL
    (archive,) = (data_lab.shared / "data/.set").glob("*.archive")
    os.truncate(archive, 1000)
    assert data_lab.stage(source)[0] == Outcome.DONE
    assert read_tree(data_lab.data().resolve()) == tree


def test_a_file_of_another_time_is_fetched_again(data_lab):
    for index in range(20):
        data_lab.put(f"images/{index}", f"{index}".encode())
    source = data_lab.source("images/")
    assert Child(data_lab, source, last=10).finish()[0] == -signal.SIGKILL
    (folder,) = (path for path in (data_lab.shared / "data/.set").iterdir() if path.is_dir())
    damaged = next(path for path in folder.iterdir() if not path.name.startswith("."))
    damaged.write_bytes(b"?" * damaged.stat().st_size)
    assert data_lab.stage(source)[0] == Outcome.DONE
    assert read_tree(data_lab.data().resolve()) == {f"{i}": ("file", f"{i}".encode(), False) for i in range(20)}
