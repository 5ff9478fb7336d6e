"""Uploads: what is sent, what is not sent twice, what an interruption leaves, and what is checked afterwards."""

import hashlib
import os
import signal
import time
from collections import Counter

import pytest
from botocore.exceptions import ClientError

from deeplearning_cli.data.bundle import Bundle
from deeplearning_cli.data.sources import Destination, PreparationError
from deeplearning_cli.data.upload import make_client, upload

PART = 5 << 20
TO = Destination("team-data", "sets/data.tar")


@pytest.fixture
def bundle(tmp_path):
    file = tmp_path / "data.tar"
    body = b"".join(number.to_bytes(4, "big") * (PART // 4) for number in range(4)) + b"end"
    file.write_bytes(body)
    return Bundle(file, len(body), hashlib.sha256(body).hexdigest())


@pytest.fixture
def s3(aws, monkeypatch):
    monkeypatch.setattr("deeplearning_cli.data.upload.PART_BYTES", PART)
    client = make_client()
    client.create_bucket(Bucket=TO.bucket)
    client.calls = Counter()
    client.meta.events.register("before-call", lambda model, **_: client.calls.update([model.name]))
    return client


def send(client, bundle):
    return upload(client, bundle, TO, lambda *_: None)


def stored(client):
    return client.get_object(Bucket=TO.bucket, Key=TO.key)["Body"].read()


def test_a_file_is_sent_in_parts_and_is_the_same_there(s3, bundle):
    assert send(s3, bundle)
    assert s3.calls["UploadPart"] == 5
    assert stored(s3) == bundle.file.read_bytes()
    assert s3.head_object(Bucket=TO.bucket, Key=TO.key)["Metadata"] == {"sha256": bundle.sha256}


def test_every_part_carries_a_checksum_by_which_s3_refuses_what_was_damaged(s3, bundle):
    algorithms = []
    s3.meta.events.register(
        "provide-client-params.s3.UploadPart", lambda params, **_: algorithms.append(params["ChecksumAlgorithm"])
    )
    send(s3, bundle)
    assert algorithms == ["SHA256"] * 5


def test_an_interrupted_upload_stores_nothing_and_leaves_no_parts_to_pay_for(s3, bundle):
    sent = []

    def fail(params, **_):
        sent.append(params["PartNumber"])
        if len(sent) > 2:
            raise ClientError({"Error": {"Code": "InternalError", "Message": "lost"}}, "UploadPart")

    s3.meta.events.register("provide-client-params.s3.UploadPart", fail, unique_id="fail")
    with pytest.raises(PreparationError, match=r"lost.*; run the same command again"):
        send(s3, bundle)
    assert "Contents" not in s3.list_objects_v2(Bucket=TO.bucket)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=TO.bucket)
    s3.meta.events.unregister("provide-client-params.s3.UploadPart", unique_id="fail")
    assert send(s3, bundle)
    assert stored(s3) == bundle.file.read_bytes()


def test_ctrl_c_stores_nothing_and_leaves_no_parts_to_pay_for(s3, bundle, monkeypatch):
    monkeypatch.setattr("deeplearning_cli.data.upload.AT_ONCE", 1)

    def interrupt(**_):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)  # The main thread cancels the other parts meanwhile.

    s3.meta.events.register("provide-client-params.s3.UploadPart", interrupt)
    with pytest.raises(KeyboardInterrupt):
        send(s3, bundle)
    assert "Contents" not in s3.list_objects_v2(Bucket=TO.bucket)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=TO.bucket)


def test_a_second_run_sends_nothing(s3, bundle):
    send(s3, bundle)
    s3.calls.clear()
    assert not send(s3, bundle)
    assert s3.calls == {"HeadObject": 1}


@pytest.mark.parametrize("body", [b"other", b""], ids=["another file", "an empty file"])
def test_a_changed_file_is_uploaded_again(s3, bundle, body):
    send(s3, bundle)
    bundle.file.write_bytes(body)
    assert send(s3, Bundle(bundle.file, len(body), hashlib.sha256(body).hexdigest()))
    assert stored(s3) == body


def test_progress_is_reported_part_by_part_up_to_the_whole_file(s3, bundle):
    told = []
    upload(s3, bundle, TO, lambda *arguments: told.append(arguments))
    assert {(what, total) for what, _, total in told} == {(TO.key, bundle.size)}
    amounts = [done for _, done, _ in told]
    assert amounts == sorted(amounts)
    assert amounts[-1] == bundle.size
    assert 0 < amounts[0] < bundle.size


@pytest.mark.parametrize("what", ["size", "digest"])
def test_the_uploaded_object_is_checked(s3, bundle, what):
    def change(parsed, **_):
        if "ContentLength" in parsed:
            parsed["ContentLength"] += what == "size"
            parsed["Metadata"] = {} if what == "digest" else parsed["Metadata"]

    s3.meta.events.register("after-call.s3.HeadObject", change)
    with pytest.raises(PreparationError, match=r"s3://team-data/sets/data\.tar must have "):
        send(s3, bundle)


def test_a_bucket_that_is_not_there_has_a_remedy(s3, bundle):
    with pytest.raises(PreparationError, match=r"NoSuchBucket.*create the bucket first: aws s3 mb"):
        upload(s3, bundle, Destination("nobody", "data.tar"), lambda *_: None)


def test_credentials_that_may_not_write_get_the_list_of_required_permissions(s3, bundle):
    def refuse(**_):
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "CreateMultipartUpload")

    s3.meta.events.register("provide-client-params.s3.CreateMultipartUpload", refuse)
    with pytest.raises(PreparationError, match=r"S3 call failed: .*AccessDenied.*; the credentials need s3:PutObject"):
        send(s3, bundle)


def test_without_credentials_that_is_the_cause(s3, bundle, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(PreparationError, match="AWS credentials must be configured, got none; run: aws configure"):
        send(make_client(), bundle)
