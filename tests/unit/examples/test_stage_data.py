"""The script that stages COCO and TensorPack in S3: resumed downloads, checked files, and archives with digests."""

import hashlib
import io
import os
import pty
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from deeplearning_cdk import DataSource
from tests.real_time import GENEROUS_SECONDS, wait_until
from tests.unit.deeplearning_provision.data_lab import Fault
from tests.unit.examples.staging_lab import SCRIPT, read_sources

TRAIN = "/zips/train2017.zip"
MODEL = "/ImageNet-R50-AlignPadding.npz"


@pytest.fixture
def s3(data_lab):
    return data_lab.client


def read(s3, key):
    return s3.get_object(Bucket="bucket", Key=key)["Body"].read()


def keys(s3):
    return [item["Key"] for item in s3.list_objects_v2(Bucket="bucket").get("Contents", [])]


def ranges(web, path):
    return [limits for asked, limits in web.requests if asked == path]


def test_both_archives_are_in_s3_with_their_digests(staging, s3):
    done = staging.stage()
    assert done.returncode == 0, done.stderr
    sources = read_sources(done.stdout)
    assert [source["name"] for source in sources] == ["coco-2017", "tensorpack"]
    for source in sources:
        key = f"sets/{source['name']}.tar"
        digest = hashlib.sha256(read(s3, key)).hexdigest()
        assert source == {"name": source["name"], "bucket": "bucket", "key": key, "sha256": digest}
        assert DataSource(**source).sha256 == digest
        assert read(s3, f"{key}.sha256") == f"{digest}  {source['name']}.tar\n".encode()


def test_only_the_archives_stay_on_the_disk(staging):
    assert staging.stage().returncode == 0
    left = {path.name for path in staging.work.iterdir()}
    archives = {"coco-2017.tar", "tensorpack.tar"}
    assert left == {"lock", *archives, *(f"{name}.sha256" for name in archives)}


def test_a_bucket_without_a_prefix_has_the_archives_at_its_root(staging, s3):
    assert staging.stage("s3://bucket/", str(staging.folder / "work")).returncode == 0
    assert {"coco-2017.tar", "tensorpack.tar"} <= set(keys(s3))


def test_a_second_run_downloads_and_uploads_nothing(staging, web, data_lab):
    first = staging.stage()
    assert first.returncode == 0, first.stderr
    web.requests, data_lab.proxy.calls = [], []
    second = staging.stage()
    assert second.returncode == 0, second.stderr
    assert web.requests == []
    assert {method for method, _ in data_lab.proxy.calls} == {"HEAD"}
    assert read_sources(second.stdout) == read_sources(first.stdout)


def test_another_machine_packs_the_same_archive(staging, s3):
    assert staging.stage().returncode == 0
    first = read(s3, "sets/coco-2017.tar")
    staging.change(r"^set -euo pipefail$", "set -euo pipefail; umask 077; export TZ=UTC-9")
    assert staging.stage("s3://bucket/other", str(staging.folder / "work2")).returncode == 0
    assert read(s3, "other/coco-2017.tar") == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert {member.mode for member in archive if member.isfile()} == {0o644}


def test_a_download_that_breaks_off_resumes(staging, web):
    web.cut = 40_000
    done = staging.stage()
    assert done.returncode == 0, done.stderr
    assert web.sent == sum(map(len, web.files.values()))
    assert ranges(web, TRAIN)[:2] == ["", "bytes=40000-"]


def test_a_run_that_was_killed_resumes_its_download(staging, web):
    web.cut, web.stall = 40_000, threading.Event()
    running = subprocess.Popen(
        staging.command(), env=staging.environment, start_new_session=True, stdout=subprocess.DEVNULL
    )
    part = staging.work / "downloads/train2017.zip.part"
    wait_until(lambda: running.poll() is not None or (part.is_file() and part.stat().st_size > 0))
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    web.stall.set()
    web.cut = web.stall = None
    size = part.stat().st_size
    done = staging.stage()
    assert done.returncode == 0, done.stderr
    assert ranges(web, TRAIN) == ["", f"bytes={size}-"]


def test_a_complete_download_of_a_run_that_was_killed_is_kept(staging, web):
    (staging.work / "downloads").mkdir(parents=True)
    (staging.work / "downloads/train2017.zip.part").write_bytes(web.files[TRAIN])
    assert staging.stage().returncode == 0
    assert ranges(web, TRAIN) == []


@pytest.mark.parametrize(
    ("begun", "has_ranges", "asked"),
    [
        (b"x" * 1_000_000, True, ["bytes=1000000-", ""]),
        (b"x" * 100, True, ["bytes=100-", ""]),
        (b"PK", False, ["bytes=2-", ""]),
    ],
    ids=["longer than the file", "of another file", "of a server without ranges"],
)
def test_a_download_that_cannot_resume_starts_again(staging, web, begun, has_ranges, asked):
    web.has_ranges = has_ranges
    (staging.work / "downloads").mkdir(parents=True)
    (staging.work / "downloads/train2017.zip.part").write_bytes(begun)
    done = staging.stage()
    assert done.returncode == 0, done.stderr
    assert ranges(web, TRAIN) == asked


def test_a_busy_server_is_asked_again(staging, web):
    web.statuses = [503, 500]
    assert staging.stage().returncode == 0


def test_a_file_that_does_not_exist_ends_the_run(staging, web, s3):
    del web.files[TRAIN]
    done = staging.stage()
    assert done.returncode == 1
    assert f"could not download {web.url}{TRAIN}; run the same command again, and it resumes" in done.stderr
    assert ranges(web, TRAIN) == [""]
    assert keys(s3) == []


@pytest.mark.parametrize("path", [TRAIN, MODEL])
def test_a_file_with_another_digest_is_refused_and_not_kept(staging, web, s3, path):
    good = web.files[path]
    web.files[path] = good.replace(Path(path).stem.encode() + b".", b"x" * len(Path(path).stem) + b".")
    assert web.files[path] != good
    done = staging.stage()
    assert done.returncode == 1
    assert f"{web.url}{path} must be intact" in done.stderr
    assert list((staging.work / "downloads").glob(f"{Path(path).name}*")) == []
    assert keys(s3) == []
    web.files[path] = good
    assert staging.stage().returncode == 0


def test_an_upload_that_failed_is_repeated(staging, s3, data_lab):
    data_lab.proxy.decide = lambda method, path, _: (
        Fault(status=500) if method == "PUT" and path.endswith("coco-2017.tar") else None
    )
    assert staging.stage().returncode != 0
    assert "sets/coco-2017.tar" not in keys(s3)
    staging.web.requests = []
    data_lab.proxy.decide = lambda *_: None
    assert staging.stage().returncode == 0
    assert staging.web.requests == []
    assert "sets/coco-2017.tar" in keys(s3)


def test_another_archive_at_the_key_is_replaced(staging, s3):
    first = staging.stage()
    content = read(s3, "sets/coco-2017.tar")
    s3.put_object(Bucket="bucket", Key="sets/coco-2017.tar", Body=bytes(len(content)))
    assert staging.stage().stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    assert read(s3, "sets/coco-2017.tar") == content


def test_a_disk_that_is_too_small_is_refused_before_the_download(staging, web):
    staging.change(r"(?<=^ROOM_GB=)\d+", "1000000000")
    done = staging.stage()
    assert done.returncode == 2
    assert "FOLDER must have 1000000000 GB, got " in done.stderr
    assert web.requests == []


def test_files_that_a_run_left_count_as_room(staging):
    """Otherwise a run that was interrupted near its end could not resume on the disk that was large enough for it."""
    staging.add_program("df", "#!/bin/sh\necho Avail\necho 999000000\n")
    staging.change(r"(?<=^ROOM_GB=)\d+", "1")
    assert staging.stage().returncode == 2
    (staging.work / "downloads").mkdir()
    (staging.work / "downloads/train2017.zip.part").write_bytes(bytes(2_000_000))
    assert staging.stage().returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "usage: stage_data.sh s3://BUCKET[/PREFIX] [FOLDER]"),
        (["s3://bucket", "work", "more"], "usage: stage_data.sh s3://BUCKET[/PREFIX] [FOLDER]"),
        (["bucket"], "the destination must be s3://BUCKET or s3://BUCKET/PREFIX, got 'bucket'"),
        (["s3://Bucket/sets"], "the destination must be"),
        (["s3://bucket//sets"], "the destination must be"),
        (["s3://bucket/a'b"], "the destination must be"),
        (["s3://nobody-has-it", "work"], "create it: aws s3 mb s3://nobody-has-it"),
        (["s3://bucket", "desk/file"], "FOLDER must be a folder that can be written, got 'desk/file'"),
    ],
)
def test_what_cannot_start_is_refused_before_the_download(staging, web, words, message):
    (staging.folder / "desk").write_text("a file")
    command = ["bash", str(staging.script), *words]
    done = subprocess.run(
        command, cwd=staging.folder, env=staging.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert web.requests == []


def test_a_program_that_is_missing_is_named(staging):
    programs = staging.folder / "few"
    programs.mkdir()
    (programs / "bash").symlink_to("/bin/bash")
    command = [str(programs / "bash"), str(staging.script), "s3://bucket"]
    done = subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "stage_data.sh: missing: aws; install it\n"


def test_help_is_the_usage():
    done = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: stage_data.sh s3://BUCKET[/PREFIX] [FOLDER]\n")
    assert "needs 65 GB" in done.stdout


def test_a_second_run_beside_the_first_is_refused(staging, web):
    web.cut, web.stall = 40_000, threading.Event()
    first = subprocess.Popen(staging.command(), env=staging.environment, stdout=subprocess.DEVNULL)
    wait_until(lambda: web.requests or first.poll() is not None)
    stall, web.cut, web.stall = web.stall, None, None
    second = staging.stage()
    stall.set()
    assert second.returncode == 2
    assert "another run must have ended" in second.stderr
    assert first.wait(GENEROUS_SECONDS) == 0


def test_a_run_that_nohup_starts_survives_its_terminal(staging, web, s3):
    web.cut, web.stall = 40_000, threading.Event()
    terminal, inside = pty.openpty()
    # The run leads its session, to which the kernel sends SIGHUP when the terminal is closed: tty_ioctl(4), TIOCSCTTY.
    lead = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
    running = subprocess.Popen(
        [sys.executable, "-c", lead, "nohup", *staging.command()],
        cwd=staging.folder,
        env=staging.environment,
        start_new_session=True,
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    wait_until(lambda: web.requests or running.poll() is not None)
    os.close(terminal)
    web.cut = None
    web.stall.set()
    assert running.wait(GENEROUS_SECONDS) == 0
    assert "sets/coco-2017.tar" in keys(s3)
    assert "both archives are in s3://bucket/sets/" in (staging.folder / "nohup.out").read_text()
