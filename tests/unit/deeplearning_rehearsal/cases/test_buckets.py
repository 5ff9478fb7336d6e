"""Buckets that a case's account has before."""

import json

import pytest

from cdk_rehearsal.iam.evaluation import evaluate
from cdk_rehearsal.iam.policy import read_policy_text
from cdk_rehearsal.iam.request import Caller, Request
from deeplearning_rehearsal.cases.account import AccountBucket, fill_account
from deeplearning_rehearsal.cases.run.cloud_faults import add_faults, make_cloud_options
from tests.unit.deeplearning_rehearsal.trial import Account, make_trial


class Kept:
    """Environments of earlier rehearsals, damaged."""

    def list_damaged(self):
        return iter([("environments/k/f.tar", b"damaged"), ("environments/r.json", b"{}")])


def test_buckets_are_there_with_policies_and_damaged_environments_before_the_stack():
    denies = AccountBucket("team", ["s3:GetObject", "s3:ListBucket"])
    case = make_trial(buckets=[denies, AccountBucket("other", damaged_environments=True)])
    kept = Kept()
    place = Account()
    add_faults(make_cloud_options(), case, kept).prepare(place)
    assert [name for name, _ in place.calls] == [
        *("create_bucket", "create_bucket"),
        *("put_bucket_policy", "put_object", "put_object"),
    ]
    assert [call["Bucket"] for _, call in place.calls] == ["team", "other", "team", "other", "other"]
    assert place.calls[0][1]["CreateBucketConfiguration"] == {"LocationConstraint": "eu-west-1"}
    assert place.calls[3][1] == {"Bucket": "other", "Key": "environments/k/f.tar", "Body": b"damaged"}


def test_a_bucket_of_nothing_is_only_made():
    place = Account()
    place.region = "us-east-1"
    nothing = None
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
def test_a_bucket_denies_what_it_says_to_a_role_that_is_allowed_all(action, resource, *, is_allowed):
    allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    role = "arn:aws:iam::1:role/master"
    caller = Caller("arn:aws:sts::1:assumed-role/master/i-1", "1", role)
    own = read_policy_text(json.dumps(allow), "identity")
    theirs = read_policy_text(AccountBucket("team", ("s3:GetObject", "s3:ListBucket")).make_policy("aws"), "resource")
    assert evaluate(Request(caller, action, resource, {}), own, theirs).is_allowed == is_allowed
