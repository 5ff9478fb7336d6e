"""Downloads that go on where they were, and keep nothing that is wrong."""

import hashlib

import pytest

from deeplearning_cli.data import download as data_download
from deeplearning_cli.data.download import ATTEMPTS, download
from deeplearning_cli.data.sources import PreparationError, Source

BODY = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()


@pytest.fixture
def source(web):
    web.files["/data.bin"] = BODY
    return Source("data.bin", f"{web.url}/data.bin", None, SHA256)


def fetch(source, folder):
    return download(source, folder, lambda *_: None, lambda _: None)


def interrupt(web, source, folder, at):
    """Let the download end after so many bytes, and the server be silent from then on."""
    web.cut, web.statuses = at, [200, *[503] * ATTEMPTS]
    with pytest.raises(PreparationError, match="it resumes the download"):
        fetch(source, folder)
    web.cut, web.statuses, web.sent, web.requests = None, [], 0, []


def test_a_file_arrives_whole_and_nothing_else_is_left(web, source, tmp_path):
    assert fetch(source, tmp_path).read_bytes() == BODY
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.bin", "data.bin.json"]


def test_an_interrupted_download_goes_on_from_where_it_was(web, source, tmp_path):
    interrupt(web, source, tmp_path, 300_000)
    assert (tmp_path / "data.bin.part").stat().st_size == 300_000
    assert not (tmp_path / "data.bin").exists()
    assert fetch(source, tmp_path).read_bytes() == BODY
    assert web.requests == ["bytes=300000-"]
    assert web.sent == len(BODY) - 300_000


def test_a_connection_that_breaks_off_again_and_again_ends_well_while_it_brings_something(web, source, tmp_path):
    web.cut = len(BODY) // (2 * ATTEMPTS)
    assert fetch(source, tmp_path).read_bytes() == BODY
    assert web.sent == len(BODY)
    assert len(web.requests) > ATTEMPTS


def test_a_second_run_requests_nothing(web, source, tmp_path):
    fetch(source, tmp_path)
    web.requests = []
    assert fetch(source, tmp_path).read_bytes() == BODY
    assert web.requests == []


def test_a_file_that_changed_on_the_server_is_downloaded_from_the_start(web, source, tmp_path):
    interrupt(web, source, tmp_path, 300_000)
    new = BODY[::-1]
    web.files["/data.bin"], web.tag = new, '"two"'
    changed = Source("data.bin", source.url, None, hashlib.sha256(new).hexdigest())
    assert fetch(changed, tmp_path).read_bytes() == new
    assert web.sent == len(new)


def test_a_file_shorter_than_the_partial_download_is_downloaded_from_the_start(web, source, tmp_path):
    web.tag = ""
    interrupt(web, source, tmp_path, 300_000)
    web.files["/data.bin"] = b"short"
    short = Source("data.bin", source.url, None, hashlib.sha256(b"short").hexdigest())
    assert fetch(short, tmp_path).read_bytes() == b"short"
    assert web.requests == ["bytes=300000-", None]


@pytest.mark.parametrize("digest", [SHA256, MD5], ids=["sha256", "md5"])
def test_a_corrupt_file_is_refused_and_not_kept(web, tmp_path, digest):
    web.files["/data.bin"] = BODY[:-1] + b"!"
    source = Source("data.bin", f"{web.url}/data.bin", None, digest)
    with pytest.raises(PreparationError, match=rf"must have {digest}, got [0-9a-f]+; it was not kept"):
        fetch(source, tmp_path)
    assert list(tmp_path.iterdir()) == []
    web.files["/data.bin"] = BODY
    assert fetch(source, tmp_path).read_bytes() == BODY


def test_another_size_than_is_known_is_refused_before_it_is_fetched(web, tmp_path):
    web.files["/data.bin"] = BODY
    with pytest.raises(PreparationError, match="must have 5 bytes, got 1024000; check the URL"):
        fetch(Source("data.bin", f"{web.url}/data.bin", None, "", 5), tmp_path)
    assert not (tmp_path / "data.bin").exists()


def test_a_missing_file_is_not_requested_twice(web, source, tmp_path):
    with pytest.raises(PreparationError, match="returned 404 Not Found; check the URL"):
        fetch(Source("none.bin", f"{web.url}/none.bin"), tmp_path)
    assert len(web.requests) == 1


def test_a_silent_server_is_retried_a_few_times(web, source, tmp_path):
    web.statuses = [503] * 100
    with pytest.raises(PreparationError, match="503 Service Unavailable; run the same command again"):
        fetch(source, tmp_path)
    assert len(web.requests) == ATTEMPTS


def test_too_small_a_disk_is_reported_before_it_is_full(web, source, tmp_path, monkeypatch):
    monkeypatch.setattr(data_download.shutil, "disk_usage", lambda _: type("Usage", (), {"free": len(BODY)}))
    with pytest.raises(PreparationError, match=rf"must have \d+ bytes free, got {len(BODY)}; choose --work"):
        fetch(source, tmp_path)
    assert web.sent <= len(BODY)
    assert not (tmp_path / "data.bin.part").exists()


def test_a_file_of_another_url_is_not_taken_for_this_one(web, source, tmp_path):
    fetch(source, tmp_path)
    web.files["/v2/data.bin"] = b"two"
    assert fetch(Source("data.bin", f"{web.url}/v2/data.bin"), tmp_path).read_bytes() == b"two"
