"""Nodes that download each source, and the paths that jobs read it from."""

import contextlib
import os
from dataclasses import replace

import pytest

from deeplearning_node.provision_status import load_steps, read_status
from deeplearning_provision import lease as leases
from deeplearning_provision.lease import STALE_SECONDS, Lease
from deeplearning_provision.steps import Outcome
from tests.unit.deeplearning_provision.data_lab import MASTER, WORKER, make_archive, make_tree, read_tree

ENTRY = {"a": ("file", b"1", False)}


@pytest.mark.defect("D44", "D57")
def test_a_worker_fetches_nothing_that_is_shared_and_finds_it_when_it_is_whole(data_lab):
    tree = make_tree(5)
    data_lab.put("set.tar.gz", make_archive("tar.gz", tree))
    source = data_lab.source("set.tar.gz")
    worker = data_lab.start(source, instance=WORKER)
    worker.see(lambda: len(worker.clock.waits) >= 12)
    assert max(worker.clock.waits) <= 15
    assert not os.path.lexists(data_lab.data(instance=WORKER))
    assert data_lab.proxy.gets == []
    assert data_lab.stage(source)[0] == Outcome.DONE
    served = data_lab.proxy.served
    assert worker.finish()[0] == Outcome.DONE
    assert read_tree(data_lab.data(instance=WORKER).resolve()) == tree
    assert data_lab.proxy.served == served


def test_a_worker_says_what_keeps_the_master(data_lab):
    source = data_lab.source("missing.tar")
    data_lab.stage(source)
    worker = data_lab.start(source, instance=WORKER)
    worker.see(lambda: len(worker.clock.waits) >= 2)
    step = read_status(data_lab.root(WORKER))["data:set"]
    assert step.state == "waiting"
    assert step.detail.startswith("the master: s3://training-data/missing.tar must exist")
    worker.finish(is_stopped=True)


@pytest.mark.defect("D55")
def test_data_of_another_cluster_on_the_file_system_is_not_taken_for_the_source(data_lab):
    data_lab.put("old.tar", make_archive("tar", ENTRY))
    data_lab.stage(data_lab.source("old.tar"))
    worker = data_lab.start(data_lab.source("new.tar"), instance=WORKER)
    worker.see(lambda: len(worker.clock.waits) >= 5)
    data_lab.put("new.tar", make_archive("tar", {"b": ("file", b"2", False)}))
    data_lab.stage(data_lab.source("new.tar"))
    assert worker.finish()[0] == Outcome.DONE
    assert read_tree(data_lab.data(instance=WORKER).resolve()) == {"b": ("file", b"2", False)}


@pytest.mark.defect("D55")
def test_a_source_that_is_no_longer_declared_is_no_longer_served(data_lab):
    data_lab.put("old.tar", make_archive("tar", ENTRY))
    data_lab.stage(data_lab.source("old.tar"))
    outcome, steps = data_lab.stage(instance="i-00000000000000003")
    assert (outcome, steps) == (Outcome.DONE, {})
    assert not os.path.lexists(data_lab.data(instance="i-00000000000000003"))


@pytest.mark.defect("D77")
def test_every_source_has_its_entry_on_every_node(data_lab):
    data_lab.put("set.tar", make_archive("tar", ENTRY))
    lustre = "/mnt/lustre"
    sources = [data_lab.source("set.tar", name, name) for name in ("efs", "local", "lustre")]
    sources.append(data_lab.source("set.tar", "stream", "stream"))
    for instance in (MASTER, WORKER):
        (data_lab.root(instance) / "mnt/lustre/lustre").mkdir(parents=True)
        outcome, steps = data_lab.stage(*sources, instance=instance, lustre=lustre)
        assert outcome == Outcome.DONE, steps
        entries = {path.name: path for path in data_lab.data(instance=instance).parent.iterdir()}
        assert sorted(entries) == ["efs", "local", "lustre", "stream.s3"]
        assert read_tree(entries["efs"].resolve()) == read_tree(entries["local"].resolve()) == ENTRY
        assert entries["lustre"].resolve() == (data_lab.root(instance) / "mnt/lustre/lustre").resolve()
        assert entries["stream.s3"].read_text() == "s3://training-data/set.tar\n"
        assert entries["local"].resolve().is_relative_to(data_lab.root(instance))


@pytest.mark.parametrize(
    ("key", "target", "outcome", "words"),
    [
        ("nothing/", "stream", Outcome.FAILED, "must contain objects, got none"),
        ("set/", "lustre", Outcome.INTERRUPTED, "must be a folder, which Lustre imports from S3"),
        ("set.tar", "efs", Outcome.INTERRUPTED, "must be mounted"),
        ("set.tar", "lustre", Outcome.INTERRUPTED, "must be mounted"),
    ],
)
def test_nothing_is_written_before_the_source_or_its_file_system_is_there(data_lab, key, target, outcome, words):
    data_lab.put("set.tar", make_archive("tar", ENTRY))
    if words == "must be mounted":
        (data_lab.programs / "mountpoint").write_text("#!/bin/sh\nexit 1\n")
    found, steps = data_lab.stage(data_lab.source(key, target=target), lustre="/mnt/efs")
    assert found == outcome
    assert words in steps["data:set"].detail
    assert list(data_lab.shared.iterdir()) == []


def test_one_source_that_fails_does_not_keep_the_others(data_lab):
    data_lab.put("good.tar", make_archive("tar", ENTRY))
    outcome, steps = data_lab.stage(data_lab.source("bad.tar", "bad"), data_lab.source("good.tar", "good"))
    assert outcome == Outcome.FAILED
    assert {name: step.state for name, step in steps.items()} == {"data:bad": "failed", "data:good": "done"}


def test_a_successor_waits_for_the_node_that_stages_and_goes_on_when_it_falls_silent(data_lab):
    tree = make_tree(3)
    data_lab.put("set.tar", make_archive("tar", tree))
    lease = data_lab.shared / "data/.set/lease"
    lease.parent.mkdir(parents=True)
    lease.write_text('{"instance": "i-00000000000000009"}')
    successor = data_lab.start(data_lab.source("set.tar"))
    successor.see(lambda: len(successor.clock.waits) >= 5)
    assert read_detail(data_lab) == "i-00000000000000009 is staging it"
    assert data_lab.proxy.gets == [("/training-data/set.tar.sha256", "bytes=0-1023")]
    os.utime(lease)
    assert successor.finish()[0] == Outcome.DONE
    assert sum(successor.clock.waits) >= STALE_SECONDS
    assert read_tree(data_lab.data().resolve()) == tree


def test_a_node_that_lost_its_lease_stops_and_leaves_the_new_owners_files_alone(data_lab, monkeypatch):
    monkeypatch.setattr(leases, "BEAT_SECONDS", 0.001)
    monkeypatch.setattr(leases, "STALE_SECONDS", float("inf"))
    data_lab.put("set.tar", make_archive("tar", make_tree(9)))
    lease, other = data_lab.shared / "data/.set/lease", data_lab.directory / "other"
    other.write_text('{"instance": "i-00000000000000009"}')

    def succeed(method, path, _limits):
        if method == "GET" and path.endswith("set.tar"):
            with contextlib.suppress(FileNotFoundError):
                other.rename(lease)

    data_lab.proxy.decide = succeed
    running = data_lab.start(data_lab.source("set.tar"))
    running.see(lambda: "is staging it" in read_detail(data_lab))
    assert lease.read_text() == '{"instance": "i-00000000000000009"}'
    assert not data_lab.data().exists()
    data_lab.proxy.decide = lambda *_: None
    lease.unlink()
    assert running.finish()[0] == Outcome.DONE


def read_detail(lab):
    step = load_steps(lab.root(MASTER)).get("data:set")
    return step.detail if step else ""


@pytest.mark.parametrize("kind", ["tar.gz", "zip", "prefix"])
def test_two_masters_at_once_do_no_harm(data_lab, kind, monkeypatch):
    monkeypatch.setattr(Lease, "hold", lambda *_: contextlib.nullcontext(enter_result=True))
    monkeypatch.setattr("deeplearning_provision.archives.extraction.PENDING_FILES", 4)
    if kind == "prefix":
        tree = {f"{index % 5}/{index}": ("file", b"content" * index, False) for index in range(60)}
        for name, entry in tree.items():
            data_lab.put(f"set/{name}", entry[1])
    else:
        tree = make_tree(40, 4000)
        data_lab.put(f"set.{kind}", make_archive(kind, tree))
    real = data_lab.facts
    monkeypatch.setattr(data_lab, "facts", lambda i, *s, **o: replace(real(i, *s, **o), role="master"))
    source = data_lab.source("set/" if kind == "prefix" else f"set.{kind}")
    instances = [f"i-0000000000000001{number}" for number in range(3)]
    all_masters = [data_lab.start(source, instance=instance) for instance in instances]
    ends = [running.finish()[0] for running in all_masters]
    assert Outcome.DONE in ends
    assert Outcome.FAILED not in ends
    files = {name: entry for name, entry in tree.items() if entry[0] != "folder"}
    for instance, end in zip(instances, ends, strict=True):
        if end == Outcome.DONE:
            found = read_tree(data_lab.data(instance=instance).resolve())
            assert {name: entry for name, entry in found.items() if entry[0] != "folder"} == files
