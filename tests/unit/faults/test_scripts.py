"""Fetching the user's scripts from a bucket that throttles, breaks off, refuses or holds something else."""

import hashlib

import pytest
from fault_proxy import CUT_OFF, RESET_BEFORE, answer_with, refuse, stall

from deeplearning_agent.workload.user_scripts import FETCH_SECONDS, fetch_script
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_node.aws_clients import ANSWER_SECONDS, DENIED_SECONDS, LONGEST_CALL_SECONDS, AwsClients, AwsFailure
from deeplearning_node.deadline import LONGEST_PAUSE_SECONDS
from deeplearning_node.failure import StageFailure

DATA = b"#!/bin/bash\n" + b"echo hello\n" * 1000
BIT_FLIP = answer_with(lambda call, body: body.replace(b"hello", b"helLo", 1))
SCRIPT = ScriptSettings("bucket", "key", hashlib.sha256(DATA).hexdigest())


@pytest.fixture
def bucket(clients, proxy):
    clients.s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    clients.s3.put_object(Bucket="bucket", Key="key", Body=DATA)
    proxy.clear()


@pytest.mark.fault(39, 41)
@pytest.mark.parametrize(
    "fault",
    [refuse("SlowDown", 503), refuse("InternalError", 500), refuse("RequestTimeout"), RESET_BEFORE, CUT_OFF, BIT_FLIP],
    ids=["slow-down", "error", "time-out", "reset", "cut-off", "bit-flip"],
)
def test_a_script_is_fetched_through_what_passes(bucket, proxy, clients, machine, fault):
    proxy.inject(fault, "GetObject", on=(1, 2, 3, 4, 5))
    node = machine.node()
    path = fetch_script(node, clients, SCRIPT, "setup", node.limit(1000))
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o755
    assert proxy.count("GetObject") == 6


@pytest.mark.fault(42)
def test_a_script_that_the_role_may_not_read_is_named_with_the_action(bucket, proxy, clients, machine, clock):
    proxy.inject(refuse("AccessDenied", 403), "GetObject")
    node = machine.node()
    began = clock.now
    with pytest.raises(AwsFailure, match=r"AccessDenied.* GetObject"):
        fetch_script(node, clients, SCRIPT, "setup", node.limit(1000))
    assert clock.now - began < DENIED_SECONDS + LONGEST_PAUSE_SECONDS


@pytest.mark.fault(63)
@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_never_answers_ends_in_bounded_time(proxy, machine, clock):
    proxy.inject(stall(ANSWER_SECONDS), "GetObject")
    node = machine.node()
    began = clock.now
    with pytest.raises(AwsFailure):
        fetch_script(node, AwsClients("eu-west-1"), SCRIPT, "setup", node.limit(100))
    assert clock.now - began <= min(100, FETCH_SECONDS) + LONGEST_CALL_SECONDS


@pytest.mark.fault(55)
def test_a_script_that_is_not_what_was_deployed_is_never_run(bucket, clients, machine):
    clients.s3.put_object(Bucket="bucket", Key="key", Body=DATA.replace(b"hello", b"helLo"))
    node = machine.node()
    with pytest.raises(StageFailure, match="sha256 of s3://bucket/key must be"):
        fetch_script(node, clients, SCRIPT, "setup", node.limit(1000))
    assert list(machine.root.rglob("scripts/*")) == []
