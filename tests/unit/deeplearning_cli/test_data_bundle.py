"""One archive of many sources."""

import hashlib
import io
import os
import tarfile
import tracemalloc
import zipfile

import pytest

from deeplearning_cli.data import bundle as data_bundle
from deeplearning_cli.data.bundle import make_bundle
from deeplearning_cli.data.sources import InputError, PreparationError, Source, read_path


@pytest.fixture
def sources(tmp_path):
    """A zip, a compressed tar, a folder and a file."""
    inputs = tmp_path / "inputs"
    (inputs / "folder/deep").mkdir(parents=True)
    (inputs / "folder/deep/run.sh").write_text("#!/bin/sh\n")
    (inputs / "folder/deep/run.sh").chmod(0o755)
    (inputs / "folder/empty").touch()
    with zipfile.ZipFile(inputs / "images.zip", "w") as archive:
        archive.writestr("images/", "")
        archive.writestr("images/1.jpg", b"jpg")
    with tarfile.open(inputs / "labels.tar.gz", "w:gz") as archive:
        add(archive, "./labels/1.json", b"{}")
    (inputs / "model.npz").write_bytes(b"npz")
    found = [read_path(str(inputs / name)) for name in ("images.zip", "labels.tar.gz", "folder")]
    found.append(Source("model.npz", path=inputs / "model.npz", folder="pretrained-models"))
    return [(source, source.path) for source in found]


def add(archive, name, body=b"", **values):
    info = tarfile.TarInfo(name)
    info.size = len(body)
    for key, value in values.items():
        setattr(info, key, value)
    archive.addfile(info, io.BytesIO(body))


def bundle(sources, file):
    return make_bundle(sources, file, lambda *_: None)


CONTENT = {
    "images/1.jpg": b"jpg",
    "labels/1.json": b"{}",
    "folder/empty": b"",
    "folder/deep/run.sh": b"#!/bin/sh\n",
    "pretrained-models/model.npz": b"npz",
}


def test_a_tar_contains_the_sources_files(sources, tmp_path):
    made = bundle(sources, tmp_path / "data.tar")
    with tarfile.open(made.file) as archive:
        assert {member.name: archive.extractfile(member).read() for member in archive} == CONTENT
        assert archive.getmember("folder/deep/run.sh").mode == 0o755
        assert archive.getmember("folder/empty").mode == 0o644
    assert made.sha256 == hashlib.sha256(made.file.read_bytes()).hexdigest()
    assert made.size == made.file.stat().st_size


def test_a_zip_contains_the_same(sources, tmp_path):
    made = bundle(sources, tmp_path / "data.zip")
    with zipfile.ZipFile(made.file) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == CONTENT
    assert made.sha256 == hashlib.sha256(made.file.read_bytes()).hexdigest()


def test_the_same_sources_are_not_bundled_twice_and_others_are(sources, tmp_path):
    first = bundle(sources, tmp_path / "data.tar")
    written = first.file.stat().st_mtime_ns
    assert bundle(sources, tmp_path / "data.tar") == first
    assert first.file.stat().st_mtime_ns == written
    (tmp_path / "inputs/model.npz").write_bytes(b"another")
    assert bundle(sources, tmp_path / "data.tar").sha256 != first.sha256


@pytest.mark.parametrize("ending", [".tar", ".zip"])
def test_no_file_is_kept_in_memory(tmp_path, ending):
    big = tmp_path / "big.bin"
    with big.open("wb") as stream:
        stream.truncate(200 << 20)
    source = read_path(str(big))
    tracemalloc.start()
    bundle([(source, source.path)], tmp_path / f"data{ending}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_two_sources_of_the_same_path_are_refused_and_nothing_is_left(sources, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.npz").write_bytes(b"other")
    twice = Source("model.npz", path=other / "model.npz", folder="pretrained-models")
    with pytest.raises(InputError, match=r"got 'pretrained-models/model\.npz' twice"):
        bundle([*sources, (twice, twice.path)], tmp_path / "data.tar")
    assert not list(tmp_path.glob("data.tar*"))


def write_tar(path, **values):
    with tarfile.open(path, "w") as archive:
        add(archive, **values)


def write_zip(path, name):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"x")


def write_zip_link(path):
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.tar", lambda path: write_tar(path, name="../up"), "must lie within it, got '../up'"),
        ("a.tar", lambda path: write_tar(path, name="/etc/x"), "must lie within it, got '/etc/x'"),
        (
            "a.tar",
            lambda path: write_tar(path, name="l", type=tarfile.SYMTYPE, linkname="/"),
            "link or device 'l'",
        ),
        ("a.tar", lambda path: write_tar(path, name="d", type=tarfile.CHRTYPE), "link or device 'd'"),
        ("a.zip", lambda path: write_zip(path, "a/../../up"), "must lie within it"),
        ("a.zip", lambda path: write_zip(path, "C:\\x"), "must lie within it"),
        ("a.zip", write_zip_link, "got the link 'link'"),
        ("a.zip", lambda path: path.write_bytes(b"no zip"), r"could not write data\.tar: File is not a zip file"),
        ("a.tar.gz", lambda path: path.write_bytes(b"no tar"), r"could not write data\.tar: .*not a gzip file"),
    ],
)
def test_an_archive_that_would_harm_or_is_broken_is_refused_and_nothing_is_left(tmp_path, name, write, message):
    write(tmp_path / name)
    source = read_path(str(tmp_path / name))
    with pytest.raises(PreparationError, match=message):
        bundle([(source, source.path)], tmp_path / "data.tar")
    assert not list(tmp_path.glob("data.tar*"))


def test_a_corrupt_member_of_a_zip_is_found(tmp_path):
    path = tmp_path / "a.zip"
    write_zip(path, "name")
    body = path.read_bytes()
    path.write_bytes(body.replace(b"namex", b"namey", 1))
    source = read_path(str(path))
    with pytest.raises(PreparationError, match="Bad CRC-32"):
        bundle([(source, source.path)], tmp_path / "data.tar")


def test_links_to_folders_and_devices_are_refused_and_links_to_files_are_followed(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "target").write_text("followed")
    (folder / "file").symlink_to(tmp_path / "target")
    source = read_path(str(folder))
    made = bundle([(source, source.path)], tmp_path / "data.tar")
    with tarfile.open(made.file) as archive:
        assert archive.extractfile("folder/file").read() == b"followed"
    (folder / "loop").symlink_to(folder)
    with pytest.raises(InputError, match=r"must not be links, got .*; give its target"):
        bundle([(source, source.path)], tmp_path / "data.tar")
    (folder / "loop").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(InputError, match="broken link or a device"):
        bundle([(source, source.path)], tmp_path / "data.tar")


def test_too_small_a_disk_is_reported_first(sources, tmp_path, monkeypatch):
    monkeypatch.setattr(data_bundle.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(PreparationError, match="bytes free; choose --work"):
        bundle(sources, tmp_path / "data.tar")
    assert not list(tmp_path.glob("data.tar*"))
