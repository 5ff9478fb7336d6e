"""Uploads in parts: what is sent, what is not sent twice, and what is looked at afterwards."""

import hashlib
import json
from collections import Counter

import pytest
from botocore.exceptions import ClientError

from deeplearning_cli.data.bundle import Bundle
from deeplearning_cli.data.sources import Destination, PreparationError
from deeplearning_cli.data.upload import make_client, upload

PART = 5 << 20
SIZE = 4 * PART + 3
TO = Destination("team-data", "sets/data.tar")


@pytest.fixture
def bundle(tmp_path):
    file = tmp_path / "data.tar"
    body = b"".join(number.to_bytes(4, "big") * (PART // 4) for number in range(4)) + b"end"
    file.write_bytes(body)
    return Bundle(file, len(body), hashlib.sha256(body).hexdigest())


@pytest.fixture
def s3(aws):
    client = make_client()
    client.create_bucket(Bucket=TO.bucket)
    client.calls = Counter()
    client.meta.events.register("before-call", lambda model, **_: client.calls.update([model.name]))
    return client


def send(client, bundle, tmp_path):
    return upload(client, bundle, TO, tmp_path / "note.json", lambda *_: None, part_bytes=PART)


def interrupt(client, bundle, tmp_path, count=2):
    """Let all but so many parts fail."""
    sent = []

    def fail(params, **_):
        sent.append(params["PartNumber"])
        if len(sent) > count:
            raise ClientError({"Error": {"Code": "InternalError", "Message": "lost"}}, "UploadPart")

    client.meta.events.register("provide-client-params.s3.UploadPart", fail, unique_id="fail")
    with pytest.raises(PreparationError, match=r"lost.*it goes on from there"):
        send(client, bundle, tmp_path)
    client.meta.events.unregister("provide-client-params.s3.UploadPart", unique_id="fail")
    client.calls.clear()


def stored(client):
    return client.get_object(Bucket=TO.bucket, Key=TO.key)["Body"].read()


def test_a_file_is_sent_in_parts_and_is_the_same_there(s3, bundle, tmp_path):
    assert send(s3, bundle, tmp_path)
    assert s3.calls["UploadPart"] == 5
    assert stored(s3) == bundle.file.read_bytes()
    assert s3.head_object(Bucket=TO.bucket, Key=TO.key)["Metadata"] == {"sha256": bundle.sha256}
    assert not (tmp_path / "note.json").exists()


def test_an_interrupted_upload_goes_on_without_sending_a_part_again(s3, bundle, tmp_path):
    interrupt(s3, bundle, tmp_path)
    assert send(s3, bundle, tmp_path)
    assert s3.calls["UploadPart"] == 3
    assert s3.calls["ListParts"] == 1
    assert s3.calls["CreateMultipartUpload"] == 0
    assert stored(s3) == bundle.file.read_bytes()


def test_a_part_that_is_not_what_it_is_here_is_sent_again(s3, bundle, tmp_path):
    interrupt(s3, bundle, tmp_path)
    note = json.loads((tmp_path / "note.json").read_text())
    where = {"Bucket": TO.bucket, "Key": TO.key, "UploadId": note["upload_id"]}
    there = s3.list_parts(**where)["Parts"][0]["PartNumber"]
    s3.upload_part(**where, PartNumber=there, Body=b"x" * PART)
    s3.calls.clear()
    assert send(s3, bundle, tmp_path)
    assert s3.calls["UploadPart"] == 4
    assert stored(s3) == bundle.file.read_bytes()


def test_a_second_run_sends_nothing(s3, bundle, tmp_path):
    send(s3, bundle, tmp_path)
    s3.calls.clear()
    assert not send(s3, bundle, tmp_path)
    assert s3.calls == {"HeadObject": 1}


def test_another_file_is_no_continuation_and_the_old_parts_are_removed(s3, bundle, tmp_path):
    interrupt(s3, bundle, tmp_path)
    bundle.file.write_bytes(b"other")
    other = Bundle(bundle.file, 5, hashlib.sha256(b"other").hexdigest())
    assert send(s3, other, tmp_path)
    assert stored(s3) == b"other"
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=TO.bucket)


def test_an_upload_that_s3_has_forgotten_begins_anew(s3, bundle, tmp_path):
    interrupt(s3, bundle, tmp_path)
    note = json.loads((tmp_path / "note.json").read_text())
    s3.abort_multipart_upload(Bucket=TO.bucket, Key=TO.key, UploadId=note["upload_id"])
    assert send(s3, bundle, tmp_path)
    assert s3.calls["UploadPart"] == 5
    assert stored(s3) == bundle.file.read_bytes()


@pytest.mark.parametrize("what", ["size", "digest", "checksum"])
def test_what_arrived_is_looked_at(s3, bundle, tmp_path, what):
    def change(parsed, **_):
        if "ContentLength" in parsed:
            parsed["ContentLength"] += what == "size"
            parsed["Metadata"] = {} if what == "digest" else parsed["Metadata"]
            parsed["ETag"] = '"0-5"' if what == "checksum" else parsed["ETag"]

    s3.meta.events.register("after-call.s3.HeadObject", change)
    with pytest.raises(PreparationError, match=r"s3://team-data/sets/data\.tar must have "):
        send(s3, bundle, tmp_path)


def test_parts_grow_with_the_file_so_that_s3_takes_it(s3, bundle, tmp_path, monkeypatch):
    monkeypatch.setattr("deeplearning_cli.data.upload.MOST_PARTS", 3)
    assert send(s3, bundle, tmp_path)
    assert s3.calls["UploadPart"] == 3
    assert stored(s3) == bundle.file.read_bytes()


def test_a_bucket_that_is_not_there_has_a_remedy(s3, bundle, tmp_path):
    nowhere = Destination("nobody", "data.tar")
    with pytest.raises(PreparationError, match=r"NoSuchBucket.*make the bucket first: aws s3 mb"):
        upload(s3, bundle, nowhere, tmp_path / "note.json", lambda *_: None, part_bytes=PART)


def test_without_credentials_that_is_the_cause(s3, bundle, tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(PreparationError, match="AWS credentials must be there, none were found; run: aws configure"):
        send(make_client(), bundle, tmp_path)
