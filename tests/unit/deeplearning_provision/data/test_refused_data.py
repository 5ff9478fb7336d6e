"""Data that cannot be staged ends with one clear error, and leaves nothing in its place."""

import errno
import gzip
import hashlib
import os
import tarfile

import pytest

from deeplearning_provision import disk
from deeplearning_provision.steps import Outcome
from tests.unit.deeplearning_provision.data_lab import (
    BUCKET,
    Fault,
    make_archive,
    make_tar,
    make_tree,
    make_zip,
    read_tree,
)

FILE = ("file", b"content", False)
GZIP, ZIP = (make_archive(kind, make_tree(9)) for kind in ("tar.gz", "zip"))


def refuse(lab, source, **options):
    """Stage what must be refused for good; return the error."""
    outcome, steps = lab.stage(source, **options)
    step = steps[f"data:{source.name}"]
    assert (outcome, step.state, step.final) == (Outcome.FAILED, "failed", True), step
    assert not (lab.shared / "data/set").exists()
    assert not os.path.lexists(lab.data())
    return step.detail


def break_middle(content):
    middle = len(content) // 2
    return content[:middle] + bytes(byte ^ 0xFF for byte in content[middle : middle + 600]) + content[middle + 600 :]


DAMAGED = {
    "set.tar": {
        "a header is damaged": break_middle(make_tar([(f"{index}", FILE) for index in range(50)])),
        "cut inside a file": make_archive("tar", make_tree(9))[:-50_000],
        "cut between two members": make_tar([("a", FILE), ("b", FILE)])[: 2 * 1024],
        "no archive": b"this is no archive" * 100,
        "empty": b"",
    },
    "set.tar.gz": {
        "a byte is wrong": break_middle(GZIP),
        "cut": GZIP[:-30_000],
        "without its checksum": GZIP[:-6],
        "a tar that was cut": gzip.compress(make_tar([("a", FILE), ("b", FILE)])[: 2 * 1024]),
        "the last checksum is wrong": GZIP[:-8] + b"abcdefgh",
        "no gzip": make_archive("tar", make_tree(9)),
        "empty": b"",
    },
    "set.zip": {
        "a byte is wrong": break_middle(ZIP),
        "cut": ZIP[:-30_000],
        "no zip": b"this is no archive" * 100,
        "empty": b"",
    },
}


@pytest.mark.parametrize(
    ("key", "damage"), [(key, damage) for key, damages in DAMAGED.items() for damage in damages], ids=str
)
def test_a_damaged_archive_is_refused_and_leaves_nothing(data_lab, key, damage):
    data_lab.put(key, DAMAGED[key][damage])
    detail = refuse(data_lab, data_lab.source(key))
    assert "the archive must be whole, got" in detail
    assert detail.endswith("create and upload it again")
    assert data_lab.leftovers() == []


def test_the_checksum_of_a_gzip_counts_also_behind_the_last_block_that_is_read(data_lab, monkeypatch):
    monkeypatch.setattr("deeplearning_provision.archives.reader._STREAM_BYTES", 512)
    data_lab.put("set.tar.gz", DAMAGED["set.tar.gz"]["the last checksum is wrong"])
    assert "BadGzipFile: CRC check failed" in refuse(data_lab, data_lab.source("set.tar.gz"))


def test_refused_data_is_not_fetched_again_until_it_changes_or_a_user_requests_it(data_lab):
    data_lab.put("set.tar", DAMAGED["set.tar"]["cut inside a file"])
    detail = refuse(data_lab, data_lab.source("set.tar"))
    data_lab.proxy.served = 0
    assert refuse(data_lab, data_lab.source("set.tar")) == detail
    assert data_lab.proxy.served == 0
    refuse(data_lab, data_lab.source("set.tar"), is_forced=True)
    assert data_lab.proxy.served > 0
    data_lab.put("set.tar", make_archive("tar", make_tree(3)))
    assert data_lab.stage(data_lab.source("set.tar"))[0] == Outcome.DONE


@pytest.mark.parametrize("where", ["settings", "beside"])
def test_a_wrong_digest_is_refused_before_anything_is_extracted_and_a_corrected_one_counts(
    data_lab, where, monkeypatch
):
    content = make_archive("tar", make_tree(9))
    data_lab.put("set.tar", content)

    def declare(digest):
        if where == "beside":
            data_lab.put("set.tar.sha256", f"{digest}  set.tar\n")
        return data_lab.source("set.tar", sha256=digest if where == "settings" else "")

    with monkeypatch.context() as patch:
        patch.setattr("deeplearning_provision.data.content.extract", None)
        detail = refuse(data_lab, declare("0" * 64))
    assert f"sha256 of s3://training-data/set.tar must be {'0' * 64}, got " in detail
    assert data_lab.leftovers() == []
    assert data_lab.stage(declare(hashlib.sha256(content).hexdigest()))[0] == Outcome.DONE


@pytest.mark.parametrize("algorithm", ["MD5", "CRC32", "SHA1", "SHA256"])
def test_without_a_digest_of_the_user_s3s_own_is_compared(data_lab, algorithm):
    kept = {} if algorithm == "MD5" else {"ChecksumAlgorithm": algorithm}
    content = make_archive("tar", make_tree(9))
    data_lab.put("set.tar", content, **kept)
    if algorithm == "MD5":
        data_lab.client.meta.config.request_checksum_calculation = "when_required"
        data_lab.put("set.tar", content)
    real, damaged = data_lab.proxy.send, []

    def send(handler, status, headers, data, fault=None, **options):
        if handler.command == "GET" and handler.path.endswith("set.tar") and not damaged:
            damaged.append(len(data))
            data = bytes(len(data))
        real(handler, status, headers, data, fault, **options)

    data_lab.proxy.send = send
    assert f"S3's {algorithm} of s3://training-data/set.tar must be" in refuse(data_lab, data_lab.source("set.tar"))
    assert damaged
    assert data_lab.stage(data_lab.source("set.tar"), is_forced=True)[0] == Outcome.DONE


@pytest.mark.parametrize(
    ("key", "bucket", "expected"),
    [
        ("missing.tar", BUCKET, "s3://training-data/missing.tar must exist, got NoSuchKey"),
        ("missing.tar", "missing-bucket", "s3://missing-bucket/missing.tar must be in an existing bucket"),
        ("missing/", "missing-bucket", "s3://missing-bucket/missing/ must be in an existing bucket"),
        ("missing/", BUCKET, "s3://training-data/missing/ must contain objects, got none"),
        ("", BUCKET, "s3://training-data/ must contain objects, got none"),
        ("set.h5", BUCKET, "the key must end with .tar, .tar.gz, .tgz or .zip, or with / for a prefix, got 'set.h5'"),
    ],
)
def test_a_missing_key_or_bucket_is_named(data_lab, key, bucket, expected):
    detail = refuse(data_lab, data_lab.source(key, bucket=bucket))
    assert detail.startswith(expected)
    assert "; " in detail, "the remedy comes behind it"


@pytest.mark.parametrize("key", ["set.tar", "set/"])
def test_a_denied_source_names_the_right_that_is_missing(data_lab, key):
    data_lab.proxy.decide = lambda *_: Fault(status=403, code="AccessDenied")
    detail = refuse(data_lab, data_lab.source(key))
    assert f"s3://training-data/{key} must be readable by the nodes, got AccessDenied" in detail
    assert "s3:GetObject" in detail
    assert "s3:ListBucket" in detail


@pytest.mark.parametrize(("key", "rule"), [("missing.tar", "must exist"), ("set.tar", "must be readable")])
def test_a_node_that_may_list_its_source_alone_tells_a_missing_key_from_a_forbidden_one(data_lab, key, rule):
    """S3 answers 403 for a missing key to a role whose right to list names a prefix, as the constructs grant it."""
    data_lab.put("set.tar", make_archive("tar", make_tree(3)))
    data_lab.proxy.decide = lambda _method, path, _limits: (
        Fault(status=403, code="AccessDenied") if path.endswith(f"/{key}") else None
    )
    assert f"s3://training-data/{key} {rule}" in refuse(data_lab, data_lab.source(key))


@pytest.mark.parametrize(
    ("status", "code", "count"),
    [(403, "AccessDenied", 4), (503, "SlowDown", 3)],
    ids=["while IAM propagates the role", "throttling"],
)
def test_a_refusal_that_passes_is_no_failure(data_lab, status, code, count):
    data_lab.put("set.zip", make_archive("zip", make_tree(3)))
    left = iter(range(count))
    data_lab.proxy.decide = lambda *_: Fault(status=status, code=code) if next(left, None) is not None else None
    assert data_lab.stage(data_lab.source("set.zip"))[0] == Outcome.DONE


def test_an_outage_is_said_to_pass(data_lab):
    data_lab.put("set.tar", make_archive("tar", make_tree(3)))
    data_lab.proxy.decide = lambda method, path, _: Fault(cut_after=0) if path.endswith(".tar") else None
    outcome, steps = data_lab.stage(data_lab.source("set.tar"))
    assert outcome == Outcome.INTERRUPTED
    assert not steps["data:set"].final
    assert "could not read" in steps["data:set"].detail


FOLDER, BOTH = ("folder",), "must be a file or a folder, not both, got "
ESCAPES = {
    "climbs": ([("../outside", FILE)], "must not contain '..'"),
    "climbs inside": ([("a/../../outside", FILE)], "must not contain '..'"),
    "absolute": ([("/outside", FILE)], "must not be absolute"),
    "absolute link": ([("link", ("link", "/etc/passwd"))], "must stay inside"),
    "climbing link": ([("a/link", ("link", "../../outside"))], "must stay inside"),
    "link that descends to climb": ([("link", ("link", "a/../.."))], "must stay inside"),
    "two links that climb together": (
        [("a/b", FOLDER), ("a/b/up", ("link", "../..")), ("out", ("link", "a/b/up/../outside"))],
        "must stay inside",
    ),
    "through a link": ([("a", FOLDER), ("link", ("link", "a")), ("link/file", FILE)], f"{BOTH}'link'"),
    "folder in a file": ([("a", FILE), ("a/b", FILE)], f"{BOTH}'a'"),
    "file in place of a folder": ([("a/b", FILE), ("a", FILE)], f"{BOTH}'a'"),
    "device": ([("device", ("device", tarfile.CHRTYPE))], "must be a file, a folder or a link"),
    "pipe": ([("pipe", ("device", tarfile.FIFOTYPE))], "must be a file, a folder or a link"),
    "hard link outside": ([("link", ("hard link", "../outside"))], "must not contain '..'"),
    "hard link absolute": ([("link", ("hard link", "/etc/passwd"))], "must not be absolute"),
    "hard link to nothing": ([("link", ("hard link", "nothing"))], "must name a file before it"),
    "a name that is too long": ([("n" * 256, FILE)], "at most 255 bytes"),
}
IN_ZIPS = ("climbs", "climbs inside", "absolute", "absolute link", "climbing link", "pipe")


@pytest.mark.parametrize(
    ("kind", "escape"), [*(("tar", escape) for escape in ESCAPES), *(("zip", escape) for escape in IN_ZIPS)]
)
def test_a_member_that_would_escape_is_refused(data_lab, kind, escape):
    entries, expected = ESCAPES[escape]
    data_lab.put(f"set.{kind}", make_archive(kind, [("first", FILE), *entries]))
    assert expected in refuse(data_lab, data_lab.source(f"set.{kind}"))
    assert not list(data_lab.directory.rglob("outside"))
    assert data_lab.leftovers() == []


def test_an_encrypted_zip_is_refused(data_lab):
    content = bytearray(make_zip([("a", FILE)]))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    data_lab.put("set.zip", bytes(content))
    assert "'a' is encrypted" in refuse(data_lab, data_lab.source("set.zip"))


class Disk:
    """Result of `statvfs` for a disk with a given free space."""

    def __init__(self, free, inodes=10**9):
        self.f_frsize, self.f_bavail, self.f_blocks = 1, free, 10**12
        self.f_favail, self.f_files = inodes, 10**9


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip", "prefix"])
def test_a_disk_without_room_is_refused_before_anything_is_fetched(data_lab, kind, monkeypatch):
    content = make_archive("zip" if kind == "prefix" else kind, make_tree(9))
    data_lab.put("set/0" if kind == "prefix" else f"set.{kind}", content)
    monkeypatch.setattr(disk, "read_room", lambda _: Disk(256 * 2**20 + len(content) * 3 // 4))
    detail = refuse(data_lab, data_lab.source("set/" if kind == "prefix" else f"set.{kind}"))
    assert "must be free on" in detail
    assert "before anything is fetched" in detail
    assert data_lab.proxy.served == 0


def test_a_disk_without_inodes_is_refused_before_anything_is_fetched(data_lab, monkeypatch):
    for index in range(3):
        data_lab.put(f"set/{index}", b"content")
    monkeypatch.setattr(disk, "read_room", lambda _: Disk(10**12, 2002))
    assert "2003 inodes must be free on" in refuse(data_lab, data_lab.source("set/"))
    assert data_lab.proxy.served == 0


@pytest.mark.parametrize("moment", ["download", "extraction"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_becomes_full_is_reported_and_freed_and_takes_the_source_later(
    data_lab, moment, number, monkeypatch
):
    data_lab.put("set.tar", make_archive("tar", make_tree(30)))
    name = {"download": "pwrite", "extraction": "write"}[moment]
    real, room = getattr(os, name), [600_000]

    def write(handle, data, *position):
        if len(data) > 1000:
            room[0] -= len(data)
            if room[0] < 0:
                raise OSError(number, os.strerror(number))
        return real(handle, data, *position)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, write)
        detail = refuse(data_lab, data_lab.source("set.tar"))
    assert os.strerror(number) in detail
    assert "free space or enlarge the disk, then run: deeplearning data --stage" in detail
    assert data_lab.leftovers() == []
    assert data_lab.stage(data_lab.source("set.tar"))[0] == Outcome.DONE
    assert read_tree(data_lab.data().resolve()) == make_tree(30)


def test_a_folder_that_nobody_staged_is_not_replaced(data_lab):
    (data_lab.shared / "data/set").mkdir(parents=True)
    (data_lab.shared / "data/set/own").write_text("work of a year")
    data_lab.put("set.tar", make_archive("tar", make_tree(3)))
    outcome, steps = data_lab.stage(data_lab.source("set.tar"))
    assert outcome == Outcome.FAILED
    assert "must not exist before the source is staged" in steps["data:set"].detail
    assert (data_lab.shared / "data/set/own").read_text() == "work of a year"
