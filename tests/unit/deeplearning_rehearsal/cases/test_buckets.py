"""Buckets that a case's account has before, shell lines that its master runs, and the status that it waits for."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from cdk_rehearsal.iam.evaluation import evaluate
from cdk_rehearsal.iam.policy import read_policy_text
from cdk_rehearsal.iam.request import Caller, Request
from deeplearning_rehearsal.cases.format.account import AccountBucket, fill_account
from deeplearning_rehearsal.cases.format.case import CaseError
from deeplearning_rehearsal.cases.run.cloud_faults import add_faults, make_cloud_options
from deeplearning_rehearsal.cases.verdict.observations import await_status, run_commands
from tests.unit.deeplearning_rehearsal.trial import Account, parse_trial

CASE = """
title = "The cache is of no use"
expect = "formed"
context = { environment_cache = "team" }
[[bucket]]
name = "team"
denies = ["s3:GetObject", "s3:ListBucket"]
[[bucket]]
name = "other"
damaged_environments = true
[seen]
environment = "built"
environment_says = ["was not used"]
status_says = ["FORMED"]
commands = ["deeplearning hosts"]
"""


class Kept:
    """Environments of earlier rehearsals, damaged."""

    def list_damaged(self) -> Any:
        return iter([("environments/k/f.tar", b"damaged"), ("environments/r.json", b"{}")])


def test_buckets_are_there_with_policies_and_damaged_environments_before_the_stack() -> None:
    case = parse_trial(CASE)
    assert case.buckets == (
        AccountBucket("team", ("s3:GetObject", "s3:ListBucket")),
        AccountBucket("other", damaged_environments=True),
    )
    kept: Any = Kept()
    place: Any = Account()
    add_faults(make_cloud_options(), case, kept).prepare(place)
    assert [name for name, _ in place.calls] == [
        *("create_bucket", "create_bucket"),
        *("put_bucket_policy", "put_object", "put_object"),
    ]
    assert [call["Bucket"] for _, call in place.calls] == ["team", "other", "team", "other", "other"]
    assert place.calls[0][1]["CreateBucketConfiguration"] == {"LocationConstraint": "eu-west-1"}
    assert place.calls[3][1] == {"Bucket": "other", "Key": "environments/k/f.tar", "Body": b"damaged"}


def test_a_bucket_of_nothing_is_only_made() -> None:
    place: Any = Account()
    place.region = "us-east-1"
    nothing: Any = None
    fill_account(place, (), [AccountBucket("team")], nothing)
    assert place.calls == [("create_bucket", {"Bucket": "team"})]


@pytest.mark.parametrize(
    ("action", "resource", "is_allowed"),
    [
        ("s3:GetObject", "arn:aws:s3:::team/environments/a.json", False),
        ("s3:ListBucket", "arn:aws:s3:::team", False),
        ("s3:PutObject", "arn:aws:s3:::team/environments/a.json", True),
        ("s3:GetObject", "arn:aws:s3:::other/environments/a.json", True),
    ],
)
def test_a_bucket_denies_what_it_says_to_a_role_that_is_allowed_all(
    action: str, resource: str, *, is_allowed: bool
) -> None:
    allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    role = "arn:aws:iam::1:role/master"
    caller = Caller("arn:aws:sts::1:assumed-role/master/i-1", "1", role)
    own = read_policy_text(json.dumps(allow), "identity")
    theirs = read_policy_text(AccountBucket("team", ("s3:GetObject", "s3:ListBucket")).make_policy("aws"), "resource")
    assert evaluate(Request(caller, action, resource, {}), own, theirs).is_allowed == is_allowed


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "team"', "", r"bucket\[0\]\.name must be given, it is a text"),
        ('name = "team"', 'name = "team"\nregion = "x"', r"bucket\[0\]\.region must be left out"),
        ('"built"', '"fine"', r"seen\.environment must be one of built, kept, failed, got 'fine'"),
        (
            'expect = "formed"',
            'expect = "failed"',
            r"seen\.environment must be left out: it needs a cluster that forms",
        ),
    ],
)
def test_invalid_buckets_of_a_case_are_refused(old: str, new: str, message: str) -> None:
    assert old in CASE
    with pytest.raises(CaseError, match=message):
        parse_trial(CASE.replace(old, new))


class Lab:
    """Nodes that run shell lines."""

    def run(self, instance_id: str, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        assert (instance_id, options["user"], options["login_shell"]) == ("i-0", "ubuntu", True)
        assert options["timeout"] > 60
        return subprocess.run(list(argv), capture_output=True, text=True, check=False)


def test_a_line_succeeds_or_says_why_it_did_not() -> None:
    found = run_commands(Lab(), "i-0", "ubuntu", ["true", "echo no room; exit 3"])
    assert found == {"true": "", "echo no room; exit 3": "status 3: no room"}


def test_the_status_is_asked_until_it_says_all_of_it_wherever_its_lines_break() -> None:
    pages = ["FORMED", "FORMED, no\n     room", "never asked"]
    assert await_status(lambda: pages.pop(0), ("FORMED", "no room")) == "FORMED, no\n     room"
    assert pages == ["never asked"]


def test_a_status_that_lacks_a_text_is_returned_in_the_end() -> None:
    assert await_status(lambda: "FORMED", ("no room",), seconds=0.0) == "FORMED"
