"""`deeplearning-cdk prepare-data`, from its command line to S3."""

import hashlib
import io
import json
import sys
import tarfile
import zipfile

import pytest
from botocore.exceptions import ClientError

from deeplearning_cdk import DataSource
from deeplearning_cli.data import preparation as data_preparation
from deeplearning_cli.data.sources import PRESETS
from deeplearning_cli.data.upload import make_client
from deeplearning_cli.main import main


@pytest.fixture
def s3(aws):
    client = make_client()
    client.create_bucket(Bucket="team-data")
    return client


@pytest.fixture
def zipped(web):
    """The URL of an archive, with its digest."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("images/1.jpg", b"jpg")
    web.files["/images.zip"] = body.getvalue()
    return f"{web.url}/images.zip={hashlib.sha256(body.getvalue()).hexdigest()}"


def prepare(tmp_path, *arguments):
    return main(["prepare-data", "--work", str(tmp_path / "work"), *arguments])


def keys(client):
    return [item["Key"] for item in client.list_objects_v2(Bucket="team-data").get("Contents", [])]


def test_downloads_and_local_files_become_one_archive_that_a_cluster_can_read(s3, zipped, tmp_path, capsys):
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/1.json").write_text("{}")
    assert prepare(tmp_path, "s3://team-data/sets/coco.tar", "--url", zipped, "--path", str(tmp_path / "labels")) == 0
    body = s3.get_object(Bucket="team-data", Key="sets/coco.tar")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        assert archive.getnames() == ["images/1.jpg", "labels/1.json"]
    digest = hashlib.sha256(body).hexdigest()
    beside = s3.get_object(Bucket="team-data", Key="sets/coco.tar.sha256")["Body"].read()
    assert beside == f"{digest}  coco.tar\n".encode()
    printed = capsys.readouterr().out
    source = DataSource("coco", bucket="team-data", key="sets/coco.tar", sha256=digest)
    keywords = f"name='coco', bucket='team-data', key='sets/coco.tar', sha256='{digest}'"
    assert f"\n    data=[DataSource({keywords})]\n" in printed
    context = json.loads(printed.rpartition("-c data='")[2].rpartition("'")[0])
    assert [DataSource(**entry) for entry in context] == [source]


def test_json_is_one_document_whose_data_is_a_prop_of_the_cluster(s3, zipped, tmp_path, capsys):
    assert prepare(tmp_path, "s3://team-data/coco.tar", "--url", zipped, "--json") == 0
    printed = capsys.readouterr()
    url, _, digest = zipped.partition("=")
    body = s3.get_object(Bucket="team-data", Key="coco.tar")["Body"].read()
    data = {"name": "coco", "bucket": "team-data", "key": "coco.tar", "sha256": hashlib.sha256(body).hexdigest()}
    assert json.loads(printed.out) == {
        "sources": [{"source": url, "size": None, "digest": digest}],
        "bundle": str(tmp_path / "work/coco.tar"),
        "data": data,
        "is_ready": True,
    }
    assert DataSource(**data).sha256 == data["sha256"]
    assert "images.zip: " in printed.err


def test_json_of_a_dry_run_is_the_plan(tmp_path, capsys):
    (tmp_path / "labels").mkdir()
    arguments = ("s3://team-data/sets/", "--no-bundle", "--path", str(tmp_path / "labels"), "--dry-run", "--json")
    assert prepare(tmp_path, *arguments) == 0
    assert json.loads(capsys.readouterr().out) == {
        "sources": [{"source": str(tmp_path / "labels"), "size": None, "digest": None}],
        "bundle": None,
        "data": {"name": "sets", "bucket": "team-data", "key": "sets/"},
        "is_ready": False,
    }


def test_json_of_a_failed_preparation_is_its_error(s3, web, zipped, tmp_path, capsys):
    web.files["/images.zip"] = b"other"
    assert prepare(tmp_path, "s3://team-data/coco.tar", "--url", zipped, "--json") == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["exit_status"] == 1
    assert "it was not kept, check URL and digest" in error["message"]


def test_a_second_run_does_nothing(s3, web, zipped, tmp_path, monkeypatch):
    assert prepare(tmp_path, "s3://team-data/coco.tar", "--url", zipped) == 0
    web.requests = []
    calls = []
    client = make_client()
    client.meta.events.register("before-call", lambda model, **_: calls.append(model.name))
    monkeypatch.setattr(data_preparation, "make_client", lambda: client)
    assert prepare(tmp_path, "s3://team-data/coco.tar", "--url", zipped) == 0
    assert web.requests == []
    assert sorted(calls) == ["HeadBucket", "HeadObject", "HeadObject"]


def test_a_corrupt_download_ends_it_before_anything_is_uploaded(s3, web, zipped, tmp_path, capsys):
    web.files["/images.zip"] = b"other"
    assert prepare(tmp_path, "s3://team-data/coco.tar", "--url", zipped) == 1
    assert "it was not kept, check URL and digest" in capsys.readouterr().err
    assert keys(s3) == []


def test_without_a_bundle_every_file_lies_below_the_prefix(s3, zipped, tmp_path, capsys):
    (tmp_path / "labels/deep").mkdir(parents=True)
    (tmp_path / "labels/deep/1.json").write_text("{}")
    arguments = ["s3://team-data/sets/", "--no-bundle", "--url", zipped, "--path", str(tmp_path / "labels")]
    assert prepare(tmp_path, *arguments) == 0
    assert keys(s3) == ["sets/images.zip", "sets/labels/deep/1.json"]
    assert prepare(tmp_path, *arguments) == 0
    assert '-c data=\'[{"name": "sets", "bucket": "team-data", "key": "sets/"}]\'' in capsys.readouterr().out


def test_an_interrupted_upload_of_many_files_goes_on_with_the_next_file(s3, tmp_path, capsys, monkeypatch):
    (tmp_path / "labels").mkdir()
    for name in ("1", "2", "3"):
        (tmp_path / f"labels/{name}.json").write_text(name)
    arguments = ["s3://team-data/sets/", "--no-bundle", "--path", str(tmp_path / "labels")]
    sent = []

    def note(params, **_):
        sent.append(params["Key"])
        if len(sent) == 2:
            raise ClientError({"Error": {"Code": "InternalError", "Message": "lost"}}, "PutObject")

    client = make_client()
    client.meta.events.register("provide-client-params.s3.PutObject", note)
    monkeypatch.setattr(data_preparation, "make_client", lambda: client)
    assert prepare(tmp_path, *arguments) == 1
    assert "lost; run the same command again; it skips files that are in S3 already" in capsys.readouterr().err
    assert keys(s3) == ["sets/labels/1.json"]
    assert prepare(tmp_path, *arguments) == 0
    assert sent == [f"sets/labels/{name}.json" for name in ("1", "2", "2", "3")]
    (tmp_path / "labels/1.json").write_text("0")
    assert prepare(tmp_path, *arguments) == 0
    assert sent[4:] == ["sets/labels/1.json"]
    assert s3.get_object(Bucket="team-data", Key="sets/labels/1.json")["Body"].read() == b"0"


def test_a_zip_is_made_when_it_is_wanted(s3, zipped, tmp_path):
    assert prepare(tmp_path, "s3://team-data/coco.zip", "--zip", "--url", zipped) == 0
    body = s3.get_object(Bucket="team-data", Key="coco.zip")["Body"].read()
    assert zipfile.ZipFile(io.BytesIO(body)).namelist() == ["images/1.jpg"]


def test_a_dry_run_connects_to_nothing_and_writes_nothing(web, tmp_path, capsys):
    assert prepare(tmp_path, "s3://team-data/coco-2017.tar", "--preset", "coco-2017", "--dry-run") == 0
    printed = capsys.readouterr().out
    assert all(source.url in printed for source in PRESETS["coco-2017"])
    assert "upload    s3://team-data/coco-2017.tar and s3://team-data/coco-2017.tar.sha256" in printed
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s3://team-data/a.tar"], "sources must be given"),
        (["team-data/a.tar", "--url", "http://h/x"], "destination must be s3://BUCKET/KEY"),
        (["s3://Team/a.tar", "--url", "http://h/x"], "bucket must be"),
        (["s3://team-data/a/", "--url", "http://h/x"], "key must end with <name>.tar"),
        (["s3://team-data/a.tar", "--no-bundle", "--url", "http://h/x"], "prefix must end with a slash"),
        (["s3://team-data/a.tar", "--url", "ftp://h/x"], "--url must begin with"),
        (["s3://team-data/a.tar", "--path", "/nonexistent"], "--path must be a file or a folder"),
    ],
)
def test_bad_input_is_refused_before_anything_is_done(tmp_path, capsys, arguments, message):
    assert prepare(tmp_path, *arguments) == 2
    assert f"deeplearning-cdk: {message}" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_bucket_that_is_not_there_ends_it_before_the_downloads(aws, web, zipped, tmp_path, capsys):
    assert prepare(tmp_path, "s3://nobody-has-it/a.tar", "--url", zipped) == 1
    assert "create the bucket first: aws s3 mb" in capsys.readouterr().err
    assert web.requests == []


def test_a_work_folder_that_cannot_be_created_is_reported(s3, zipped, tmp_path, capsys):
    (tmp_path / "work").write_text("a file")
    assert prepare(tmp_path, "s3://team-data/a.tar", "--url", zipped) == 2
    assert "--work must be a folder that can be written" in capsys.readouterr().err


def test_without_boto3_the_command_that_installs_it_is_named(web, zipped, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert prepare(tmp_path, "s3://team-data/a.tar", "--url", zipped) == 2
    assert "missing: boto3; run: pip install 'boto3<2,>=1.35' 'rich<16,>=15'\n" in capsys.readouterr().err


def test_the_presets_of_the_command_line_are_those_there_are(capsys):
    with pytest.raises(SystemExit):
        main(["prepare-data", "s3://b/a.tar", "--preset", "none"])
    said = capsys.readouterr().err
    assert all(name in said for name in PRESETS)


def test_progress_without_a_terminal_is_a_line_for_each_tenth(s3, web, tmp_path, capsys):
    web.files["/big.bin"] = bytes(30 << 20)
    assert prepare(tmp_path, "s3://team-data/a.tar", "--url", f"{web.url}/big.bin") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("big.bin: ")]
    assert lines == [f"big.bin: {percent} % of {30 << 20} bytes" for percent in range(0, 101, 10)]
