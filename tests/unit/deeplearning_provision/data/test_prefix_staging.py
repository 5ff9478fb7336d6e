"""All objects below a prefix become a folder."""

import os

import pytest

from deeplearning_provision.s3 import ObjectStore, StoredObject
from deeplearning_provision.steps import Outcome, ProvisionFailure
from tests.unit.deeplearning_provision.data_lab import SETTINGS, make_archive, read_tree


def fill(lab, contents, prefix="set/"):
    for key, content in contents.items():
        lab.put(f"{prefix}{key}", content)
    return {key: content for key, content in contents.items() if not key.endswith("/")}


def read_files(lab, **options):
    return {name: entry[1] for name, entry in read_tree(lab.data(**options).resolve()).items() if entry[0] == "file"}


def test_a_prefix_of_more_objects_than_a_page_holds_comes_whole(data_lab):
    contents = {f"{index % 7}/{index:04d}": f"{index}".encode() for index in range(15)}
    data_lab.proxy.page = 10
    data_lab.proxy.objects = {f"set/{key}": content for key, content in contents.items()}
    outcome, steps = data_lab.stage(data_lab.source("set/"))
    assert outcome == Outcome.DONE, steps
    assert read_files(data_lab) == contents
    assert steps["data:set"].detail.startswith("15 objects of s3://training-data/set/ (")
    pages = [path for method, path in data_lab.proxy.calls if method == "GET" and path.count("/") < 2]
    assert len(pages) == 2


def test_a_whole_bucket_can_be_staged(data_lab):
    contents = fill(data_lab, {"a": b"1", "b/c": b"2"}, prefix="")
    assert data_lab.stage(data_lab.source(""))[0] == Outcome.DONE
    assert read_files(data_lab) == contents


def test_large_objects_come_in_parts_and_empty_ones_too(data_lab):
    large, other = os.urandom(3 * SETTINGS.part_bytes + 5), os.urandom(300_000)
    contents = fill(data_lab, {"large": large, "deep/large": other, "empty": b""})
    assert data_lab.stage(data_lab.source("set/"))[0] == Outcome.DONE
    assert read_files(data_lab) == contents
    assert sum(path.endswith("set/large") for path, _ in data_lab.proxy.gets) == 4
    assert data_lab.leftovers() == []


def test_staged_data_of_a_prefix_costs_one_listing(data_lab):
    fill(data_lab, {f"{index}": b"x" for index in range(5)})
    data_lab.stage(data_lab.source("set/"))
    data_lab.proxy.calls.clear()
    assert data_lab.stage(data_lab.source("set/"))[0] == Outcome.DONE
    assert len(data_lab.proxy.calls) == 1


def test_keys_that_end_with_a_slash_are_folders(data_lab):
    fill(data_lab, {"": b"", "empty/": b"", "a/": b"", "a/b": b"1"})
    assert data_lab.stage(data_lab.source("set/"))[0] == Outcome.DONE
    assert read_tree(data_lab.data().resolve()) == {
        "a": ("folder",), "a/b": ("file", b"1", False), "empty": ("folder",),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["good", "../bad"], "must not contain '..', got '../bad'"),
        (["a/../../bad"], "must not contain '..', got 'a/../../bad'"),
        (["/bad"], "must not be absolute, got '/bad'"),
        (["a//bad"], "must be a plain path below its prefix, got 'a//bad'"),
        (["./bad"], "must be a plain path below its prefix, got './bad'"),
        (["a", "a/bad"], "must be a file or a folder, not both, got 'a'"),
        (["a", "a-b", "a/"], "must be a file or a folder, not both, got 'a'"),
        (["n" * 300], "at most 255 bytes"),
    ],
)
def test_keys_that_could_not_be_files_are_refused_before_anything_is_fetched(data_lab, keys, expected, monkeypatch):
    # An HTTP client may tidy a path with dots; the store's own words are what counts.

    listed = [StoredObject("training-data", f"set/{key}", 0 if key.endswith("/") else 3, '"e"') for key in keys]
    monkeypatch.setattr(ObjectStore, "list_pages", lambda *_: iter([listed]))
    outcome, steps = data_lab.stage(data_lab.source("set/"))
    assert (outcome, steps["data:set"].final) == (Outcome.FAILED, True)
    assert expected in steps["data:set"].detail
    assert data_lab.proxy.gets == []
    assert not (data_lab.shared / "data/set").exists()


def test_a_prefix_that_changed_takes_the_place_of_the_old_one(data_lab):
    fill(data_lab, {"a/old": b"1", "kept": b"2"})
    data_lab.stage(data_lab.source("set/"))
    data_lab.client.delete_object(Bucket="training-data", Key="set/a/old")
    fill(data_lab, {"a": b"3"})
    assert data_lab.stage(data_lab.source("set/"))[0] == Outcome.DONE
    assert read_files(data_lab) == {"a": b"3", "kept": b"2"}
    assert data_lab.leftovers() == []


def test_a_source_that_becomes_an_archive_takes_the_place_of_its_prefix(data_lab):
    fill(data_lab, {"a": b"1"})
    data_lab.stage(data_lab.source("set/"))
    data_lab.put("set.zip", make_archive("zip", {"b": ("file", b"2", False)}))
    assert data_lab.stage(data_lab.source("set.zip"))[0] == Outcome.DONE
    assert read_files(data_lab) == {"b": b"2"}


def test_files_of_an_interrupted_listing_that_are_gone_from_s3_do_not_stay(data_lab, monkeypatch):
    fill(data_lab, {f"{index}/x": b"1" * 10 for index in range(20)})

    real, written = ObjectStore.fetch, []

    def fetch(self, item, *rest):
        written.append(item)
        if len(written) > 10:
            raise ProvisionFailure("interrupted", "")
        real(self, item, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "fetch", fetch)
        assert data_lab.stage(data_lab.source("set/"))[0] == Outcome.FAILED
    for index in range(20):
        data_lab.client.delete_object(Bucket="training-data", Key=f"set/{index}/x")
    contents = fill(data_lab, {"0": b"a file where a folder was", "1/x": b"other", "1/y": b"new"})
    assert data_lab.stage(data_lab.source("set/"))[0] == Outcome.DONE
    assert read_tree(data_lab.data().resolve()).keys() == {"0", "1", "1/x", "1/y"}
    assert read_files(data_lab) == contents
