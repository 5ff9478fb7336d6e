"""Archives and prefixes in S3 become folders: whole, once, and by concurrent threads."""

import io
import os
import tarfile
import time

import pytest

from deeplearning_provision.archives.extraction import extract
from deeplearning_provision.archives.tree_writer import TreeWriter
from deeplearning_provision.s3 import ObjectStore, StoredObject
from deeplearning_provision.steps import Outcome, ProvisionFailure
from tests.unit.deeplearning_provision.data_lab import SETTINGS, make_archive, make_tree, read_tree

FORMATS = {"tar": "set.tar", "tar.gz": "set.tar.gz", "tgz": "set.tgz", "zip": "set.zip"}


@pytest.mark.defect("D56", "D57")
@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_that_is_promised_becomes_the_same_tree(data_lab, kind):
    tree = make_tree()
    data_lab.put(FORMATS[kind], make_archive(kind, tree))
    outcome, steps = data_lab.stage(data_lab.source(FORMATS[kind]))
    assert (outcome, steps["data:set"].state) == (Outcome.DONE, "done"), steps
    assert read_tree(data_lab.data().resolve()) == tree
    assert data_lab.leftovers() == []
    assert not (data_lab.shared / ".deeplearning").exists()


@pytest.fixture(params=[False, True], ids=["before", "since"])
def tarfile_of_updates(request, monkeypatch):
    """
    The two forms of Python's tarfile that nodes have: before and since the security updates of 2026.

    Those read each header by private methods of other names, for https://github.com/python/cpython/issues/141707; seen
    in Debian's python3.11 3.11.2-6+deb12u9.
    """
    original = tarfile.TarInfo.frombuf.__func__

    def read(cls, archive):
        found = original(cls, archive.fileobj.read(tarfile.BLOCKSIZE), archive.encoding, archive.errors)
        found.offset = archive.fileobj.tell() - tarfile.BLOCKSIZE
        return found._proc_member(archive)

    if request.param:
        monkeypatch.setattr(tarfile.TarInfo, "fromtarfile", classmethod(read))


@pytest.mark.usefixtures("tarfile_of_updates")
@pytest.mark.parametrize("kind", ["tar", "tgz"])
def test_the_end_of_a_tar_is_seen_by_every_python_that_nodes_have(data_lab, kind):
    whole = {"a": ("file", bytes(512), False), "b": ("file", bytes(512), False)}
    data_lab.put(FORMATS[kind], make_archive(kind, whole))
    assert data_lab.stage(data_lab.source(FORMATS[kind]))[0] == Outcome.DONE
    assert read_tree(data_lab.data().resolve()) == whole
    data_lab.put("set.tar", make_archive("tar", whole)[:1024])
    outcome, steps = data_lab.stage(data_lab.source("set.tar"))
    assert outcome != Outcome.DONE
    assert "without an end marker" in steps["data:set"].detail


@pytest.mark.parametrize(
    ("key", "stored", "call"),
    [
        ("set.zip", "set.zip", ("HEAD", "/training-data/set.zip")),
        ("set/", "set/0.zip", ("GET", "/training-data")),
    ],
)
def test_a_staged_source_costs_one_call(data_lab, key, stored, call):
    data_lab.put(stored, make_archive("zip", make_tree(3)))
    data_lab.stage(data_lab.source(key))
    data_lab.proxy.calls.clear()
    assert data_lab.stage(data_lab.source(key))[0] == Outcome.DONE
    assert data_lab.proxy.calls == [call]


# --- Prefixes ------------------------------------------------------------------------------------------


def fill(lab, contents, prefix="set/"):
    for key, content in contents.items():
        lab.put(f"{prefix}{key}", content)
    return {key: content for key, content in contents.items() if not key.endswith("/")}


def read_files(lab, **options):
    return {name: entry[1] for name, entry in read_tree(lab.data(**options).resolve()).items() if entry[0] == "file"}


def test_a_prefix_of_more_objects_than_a_page_holds_comes_whole(data_lab, monkeypatch):
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")  # S3's is 1,000.
    contents = fill(data_lab, {f"{index % 7}/{index:04d}": f"{index}".encode() for index in range(15)})
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


def test_a_source_that_becomes_an_archive_takes_the_place_of_its_prefix(data_lab):
    fill(data_lab, {"a": b"1"})
    data_lab.stage(data_lab.source("set/"))
    data_lab.put("set.zip", make_archive("zip", {"b": ("file", b"2", False)}))
    assert data_lab.stage(data_lab.source("set.zip"))[0] == Outcome.DONE
    assert read_files(data_lab) == {"b": b"2"}
    assert data_lab.leftovers() == []


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


def test_the_last_member_of_a_name_counts_while_the_first_is_still_being_written(tmp_path, monkeypatch):
    archive, folder = tmp_path / "set.tar", tmp_path / "set"
    folder.mkdir()
    with tarfile.open(archive, "w") as file:
        for content in (b"the first", b"the last"):
            member = tarfile.TarInfo("twice")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    write = TreeWriter.write_file

    def write_the_first_slowly(self, parts, blocks, mode=0o644):
        if blocks == [b"the first"]:
            time.sleep(0.2)
        write(self, parts, blocks, mode)

    monkeypatch.setattr(TreeWriter, "write_file", write_the_first_slowly)
    assert extract(archive, "tar", folder, 4, lambda _: None) == 2
    assert (folder / "twice").read_bytes() == b"the last"
