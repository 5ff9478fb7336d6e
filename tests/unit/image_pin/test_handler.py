"""The image is read when CloudFormation asks, and every event is answered."""

import json

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from image_pin import handler

PARAMETER = "/team/images/training"
IMAGE = "ami-0123456789abcdef0"


def make_event(url, kind="Create", **more):
    return {
        "RequestType": kind,
        "ResponseURL": url,
        "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/a/b",
        "RequestId": "1",
        "LogicalResourceId": "Image",
        "ResourceProperties": {"ServiceToken": "arn", "Parameter": PARAMETER, "Release": "1"},
        **more,
    }


def put_parameter(_server, value=IMAGE):
    boto3.client("ssm").put_parameter(Name=PARAMETER, Type="String", Value=value, Overwrite=True)


def test_a_creation_is_answered_with_the_image_that_the_parameter_names(aws, signals):
    put_parameter(aws)
    handler.handle(make_event(signals.url), None)
    [(path, kind, answer)] = signals.requests
    assert (path, kind) == ("/arn%3Aaws?X-Amz-Signature=a%2Fb", "")
    assert answer["Status"] == "SUCCESS"
    assert answer["Data"]["ImageId"] == IMAGE
    assert {answer[name] for name in ("StackId", "RequestId", "LogicalResourceId")} == {
        "arn:aws:cloudformation:us-east-1:123456789012:stack/a/b",
        "1",
        "Image",
    }


NEWER = "ami-00000000000000001"


@pytest.fixture
def pinned(aws, signals):
    """Return what updates the resource, created with `IMAGE` before its parameter names `NEWER`."""
    put_parameter(aws)
    handler.handle(make_event(signals.url), None)
    put_parameter(aws, NEWER)
    last = make_event("")["ResourceProperties"]

    def update(identity=None, **changes):
        nonlocal last
        before, last = last, {**last, **changes}
        identity = identity or signals.bodies[-1]["PhysicalResourceId"]
        event = make_event(signals.url, "Update", PhysicalResourceId=identity, OldResourceProperties=before)
        handler.handle({**event, "ResourceProperties": last}, None)
        return signals.bodies[-1]

    return update


def test_another_release_is_answered_with_the_current_image(pinned):
    assert pinned(Release="2")["Data"] == {"ImageId": NEWER}


def test_another_parameter_is_answered_with_its_image(pinned):
    boto3.client("ssm").put_parameter(Name="/team/other", Type="String", Value="ami-00000000000000002")
    assert pinned(Parameter="/team/other")["Data"] == {"ImageId": "ami-00000000000000002"}


@pytest.mark.parametrize("identity", [None, IMAGE], ids=["ours", "of an earlier version"])
@pytest.mark.parametrize("change", [{"ServiceTimeout": "400"}, {"ServiceToken": "other"}], ids=str)
def test_an_update_that_leaves_parameter_and_release_keeps_the_image(pinned, change, identity):
    """CloudFormation sends `Update` for any property (CloudFormation user guide, "Custom resource request types")."""
    first = pinned(identity, **change)
    assert first["Data"] == {"ImageId": IMAGE}
    assert pinned(ServiceTimeout="500")["PhysicalResourceId"] == first["PhysicalResourceId"]


@pytest.mark.parametrize("identity", [None, IMAGE], ids=["ours", "of an earlier version"])
def test_the_rollback_of_another_release_brings_the_image_back(pinned, identity):
    """Its `Update` has the old properties; which id comes with them is documented nowhere."""
    created = pinned(identity, ServiceTimeout="400")["PhysicalResourceId"]
    assert pinned(Release="2")["Data"] == {"ImageId": NEWER}
    assert pinned(Release="1")["Data"] == {"ImageId": IMAGE}
    assert pinned(Release="2")["Data"] == {"ImageId": NEWER}
    assert pinned(created, Release="1")["Data"] == {"ImageId": IMAGE}


def test_an_update_that_fails_keeps_the_id(aws, signals, pinned):
    boto3.client("ssm").delete_parameter(Name=PARAMETER)
    before = signals.bodies[-1]["PhysicalResourceId"]
    answer = pinned(Release="2")
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("FAILED", before)
    assert pinned(Release="1")["Data"] == {"ImageId": IMAGE}


def test_an_id_never_grows_beyond_what_cloudformation_takes(aws, pinned):
    for release in range(20):
        put_parameter(aws, f"ami-{release:017x}")
        assert len(pinned(Release=f"r{release}")["PhysicalResourceId"]) < 1024


def test_a_deletion_reads_nothing_and_keeps_its_id(aws, signals):
    handler.handle(make_event(signals.url, "Delete", PhysicalResourceId=IMAGE), None)
    assert (signals.bodies[0]["Status"], signals.bodies[0]["PhysicalResourceId"]) == ("SUCCESS", IMAGE)


def test_a_parameter_that_is_missing_fails_the_stack_with_its_name_and_a_remedy(aws, signals):
    handler.handle(make_event(signals.url), None)
    answer = signals.bodies[0]
    assert answer["Status"] == "FAILED"
    assert PARAMETER in answer["Reason"]
    assert "ParameterNotFound" in answer["Reason"]
    assert "check that it exists in this region" in answer["Reason"]


@given(value=st.text(min_size=1, max_size=200).filter(lambda text: not text.startswith("ami-")))
def test_a_value_that_is_not_an_image_id_is_refused(value):
    read = {"Parameter": {"Value": value}}
    patch = pytest.MonkeyPatch()
    patch.setattr(handler.boto3, "client", lambda *_, **__: type("C", (), {"get_parameter": lambda *_, **__: read})())
    try:
        with pytest.raises(handler.ImageError, match="must contain an AMI id"):
            handler.read_image({"Parameter": PARAMETER})
    finally:
        patch.undo()


def test_an_answer_that_is_not_taken_is_an_error_so_that_lambda_tries_again(aws, signals):
    signals.status = 403
    put_parameter(aws)
    with pytest.raises(OSError, match="HTTP Error 403"):
        handler.handle(make_event(signals.url), None)


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", '"', "\n"], ids=ascii)
def test_a_reason_of_any_length_and_alphabet_fits_into_an_answer(signals, monkeypatch, character):
    def refuse(_):
        raise handler.ImageError(character * 3000)

    monkeypatch.setattr(handler, "read_image", refuse)
    handler.handle(make_event(signals.url), None)
    assert len(json.dumps(signals.bodies[0])) < 4096


class WaitingClock:
    """Passes time only by waiting."""

    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    def sleep(self, seconds):
        assert 0 < seconds <= 10
        self.time += seconds


@pytest.fixture
def parameter_store(monkeypatch):
    """Answer `GetParameter` with an error until a time of the clock; return the calls' times."""
    clock, calls, state = WaitingClock(), [], {"code": "AccessDeniedException", "until": 0.0}

    def get_parameter(**_):
        calls.append(clock.time)
        if clock.time < state["until"]:
            raise ClientError({"Error": {"Code": state["code"], "Message": "not authorized"}}, "GetParameter")
        return {"Parameter": {"Value": IMAGE}}

    monkeypatch.setattr(
        handler.boto3, "client", lambda *_, **__: type("C", (), {"get_parameter": lambda _, **k: get_parameter(**k)})()
    )
    return clock, calls, state


def test_a_role_that_aws_has_not_spread_yet_is_tried_again(parameter_store):
    """IAM is eventually consistent (IAM user guide, "Changes that I make are not always immediately visible")."""
    clock, calls, state = parameter_store
    state["until"] = 45.0
    assert handler.read_image({"Parameter": PARAMETER}, clock) == IMAGE
    assert len(calls) > 1


def test_a_role_that_stays_denied_fails_after_a_minute_with_the_remedy(parameter_store):
    clock, calls, state = parameter_store
    state["until"] = 1e9
    with pytest.raises(handler.ImageError, match=r"cannot be read.*AccessDeniedException"):
        handler.read_image({"Parameter": PARAMETER}, clock)
    assert 60 <= clock.time <= 70
    assert len(calls) < 20


def test_another_error_is_not_tried_again(parameter_store):
    clock, calls, state = parameter_store
    state.update(code="ParameterNotFound", until=1e9)
    with pytest.raises(handler.ImageError, match="ParameterNotFound"):
        handler.read_image({"Parameter": PARAMETER}, clock)
    assert calls == [0.0]
