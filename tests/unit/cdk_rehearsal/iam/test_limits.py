"""The limits that permissions boundaries and service control policies set, after the user guides of AWS."""

import pytest

from cdk_rehearsal.errors import PolicyError
from cdk_rehearsal.iam.evaluation import evaluate, explain_denial
from cdk_rehearsal.iam.limits import Document, Limits
from cdk_rehearsal.iam.policy import read_policy
from cdk_rehearsal.iam.request import Caller, Request, make_context

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/corp/Worker"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/Worker/i-1"
WORKER = Caller(SESSION, ACCOUNT, ROLE, user_id="AROA1:i-1")
QUEUE = f"arn:aws:sqs:us-east-1:{ACCOUNT}:report"
KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/k1"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/corp/boundary"


def document(*statements):
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(action="sqs:SendMessage", resource="*", **rest):
    return {"Effect": "Allow", "Action": action, "Resource": resource, **rest}


def deny(action="sqs:SendMessage", resource="*", **rest):
    return allow(action, resource, **rest) | {"Effect": "Deny"}


def decide(identity=(), resource=None, *, boundary=None, organization=None, action="sqs:SendMessage", on=QUEUE, **rest):
    caller = rest.pop("caller", WORKER)
    request = Request(caller, action, on, make_context(caller, rest.pop("context", {})), rest.pop("owner", ""))
    limits = Limits(
        None if boundary is None else Document(BOUNDARY, read_policy(document(*boundary), "identity")),
        tuple(
            Document(name, read_policy(document(*statements), "identity"))
            for name, statements in (organization or {}).items()
        ),
    )
    theirs = None if resource is None else read_policy(document(*resource), "resource")
    return request, evaluate(request, read_policy(document(*identity), "identity"), theirs, limits)


def is_allowed(*policies, **rest):
    return decide(*policies, **rest)[1].is_allowed


OTHER = allow("sqs:ReceiveMessage")


@pytest.mark.parametrize(
    ("boundary", "identity", "resource", "expected"),
    [
        # Measured on AWS with a role, its boundary and a bucket policy that names the role: the README of
        # benkehoe/permissions-boundary-test on GitHub.
        ([OTHER], [], [allow(Principal={"AWS": ROLE})], "boundary is silent"),
        ([allow()], [allow()], [], "identity allows"),
        ([allow()], [], [allow(Principal={"AWS": ROLE})], "resource allows"),
        ([allow()], [allow()], [allow(Principal={"AWS": ROLE})], "resource allows"),
        ([allow()], [], [], "nothing allows"),
        ([OTHER], [allow()], [], "boundary is silent"),
        ([OTHER], [allow()], [allow(Principal={"AWS": ROLE})], "boundary is silent"),
        # IAM user guide, "How AWS enforcement code logic evaluates requests to allow or deny access": the session and
        # everybody are not limited by what the boundary leaves out, and everything by what it denies.
        ([OTHER], [], [allow(Principal={"AWS": SESSION})], "resource allows"),
        ([OTHER], [], [allow(Principal="*")], "resource allows"),
        ([OTHER], [], [allow(Principal={"AWS": "*"})], "resource allows"),
        (
            [OTHER],
            [],
            [allow(Principal="*", Condition={"ArnEquals": {"aws:PrincipalArn": ROLE}})],
            "resource allows",
        ),
        ([allow(), deny()], [], [allow(Principal={"AWS": SESSION})], "boundary denies"),
        ([allow(), deny()], [allow()], [], "boundary denies"),
        ([allow(), deny(resource=f"{QUEUE}2")], [allow()], [], "identity allows"),
        ([allow()], [allow(), deny()], [], "identity denies"),
        ([allow()], [allow()], [deny(Principal="*")], "resource denies"),
        ([OTHER], [allow()], [allow(Principal={"AWS": ACCOUNT})], "boundary is silent"),
        # IAM user guide, "Permissions boundaries for IAM entities", the note on NotPrincipal.
        ([allow()], [allow()], [deny(NotPrincipal={"AWS": [ROLE, SESSION]})], "resource denies"),
        (None, [allow()], [deny(NotPrincipal={"AWS": [ROLE, SESSION]})], "identity allows"),
    ],
)
def test_a_boundary_limits_as_the_user_guide_says(boundary, identity, resource, expected):
    assert decide(identity, resource, boundary=boundary)[1].reason == expected


def test_across_accounts_the_boundary_limits_the_session_too():
    resource = [allow(Principal={"AWS": SESSION})]
    assert is_allowed([allow()], resource, boundary=[allow()], owner="999999999999")
    assert not is_allowed([allow()], resource, boundary=[OTHER], owner="999999999999")


@pytest.mark.parametrize(("boundary", "expected"), [([allow("kms:*")], True), ([allow("sqs:*")], False)])
def test_a_boundary_limits_what_a_key_policy_gives_to_the_account_and_to_the_role(boundary, expected):
    root = allow("kms:*", Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:root"})
    use = {"action": "kms:Decrypt", "on": KEY, "boundary": boundary}
    assert is_allowed([allow("kms:Decrypt")], [root], **use) == expected
    assert is_allowed([], [allow("kms:Decrypt", Principal={"AWS": ROLE})], **use) == expected


def test_a_boundary_that_allows_under_a_condition_allows_under_it_alone():
    boundary = [allow(Condition={"StringEquals": {"aws:RequestedRegion": "eu-west-1"}})]
    for region, expected in (("eu-west-1", True), ("us-east-1", False)):
        assert is_allowed([allow()], boundary=boundary, context={"aws:RequestedRegion": region}) == expected


FULL = [allow("*")]


@pytest.mark.parametrize(
    ("organization", "expected"),
    [
        ({"full": FULL}, "identity allows"),
        ({"full": FULL, "deny.json": [deny("sqs:*")]}, "organization denies"),
        ({"full": FULL, "deny.json": [deny("sns:*")]}, "identity allows"),
        # AWS Organizations user guide, "SCP evaluation": of the policies at one level, one must allow.
        ({"deny.json": [deny("sns:*")]}, "organization is silent"),
        ({"sns.json": [allow("sns:*")], "sqs.json": [allow("sqs:*")]}, "identity allows"),
        ({"sns.json": [allow("sns:*")]}, "organization is silent"),
    ],
)
def test_service_control_policies_limit_as_the_user_guide_says(organization, expected):
    assert decide([allow()], organization=organization)[1].reason == expected


def test_service_control_policies_limit_grants_of_resources_to_sessions_and_to_everybody():
    for principal in ("*", {"AWS": SESSION}, {"AWS": ROLE}):
        resource = [allow(Principal=principal)]
        assert decide([], resource, organization={"sns.json": [allow("sns:*")]})[1].reason == "organization is silent"
        assert decide([], resource, organization={"deny.json": [*FULL, deny()]})[1].reason == "organization denies"


def test_a_service_control_policy_excepts_roles_by_the_path_of_their_arns():
    guard = [*FULL, deny("sqs:*", Condition={"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/corp/*"}})]
    assert is_allowed([allow()], organization={"guard.json": guard})
    outside = Caller(SESSION, ACCOUNT, f"arn:aws:iam::{ACCOUNT}:role/Worker")
    assert not is_allowed([allow()], organization={"guard.json": guard}, caller=outside)


def test_boundary_service_control_policy_and_identity_must_all_allow():
    """AWS Organizations user guide, "SCP effects on permissions"."""
    parts = {"boundary": [allow()], "organization": {"full": FULL}}
    assert is_allowed([allow()], **parts)
    assert not is_allowed([], **parts)
    assert not is_allowed([allow()], **parts | {"boundary": [OTHER]})
    assert not is_allowed([allow()], **parts | {"organization": {"other": [OTHER]}})


@pytest.mark.parametrize(
    ("policies", "cause"),
    [
        (
            {"boundary": [OTHER]},
            f"because no permissions boundary allows the sqs:SendMessage action: {BOUNDARY}",
        ),
        ({"boundary": [allow(), deny()]}, f"with an explicit deny in a permissions boundary: {BOUNDARY}"),
        (
            {"organization": {"full": FULL, "guard.json": [deny()]}},
            "with an explicit deny in a service control policy: guard.json",
        ),
        (
            {"organization": {"a.json": [OTHER], "b.json": [allow("sns:*")]}},
            "because no service control policy allows the sqs:SendMessage action: a.json, b.json",
        ),
    ],
)
def test_a_denial_names_the_document_in_the_words_of_aws(policies, cause):
    """IAM user guide, "Troubleshoot access denied error messages"."""
    request, decision = decide([allow()], **policies)
    expected = f"User: {SESSION} is not authorized to perform: sqs:SendMessage on resource: {QUEUE} {cause}"
    assert explain_denial(request, decision) == expected


def test_a_document_that_decides_by_what_is_not_known_is_named():
    guard = [*FULL, deny(Condition={"StringNotEquals": {"aws:SourceVpc": "vpc-1"}})]
    with pytest.raises(PolicyError, match=r"^guard\.json: a condition key must be one that the rehearsal decides by"):
        decide([allow()], organization={"guard.json": guard})


def test_a_call_that_no_service_makes_for_its_caller_says_so():
    """IAM user guide, "AWS global condition context keys": `aws:ViaAWSService`."""
    guard = [*FULL, deny(Condition={"Bool": {"aws:ViaAWSService": "false"}})]
    for value, expected in (("false", False), ("true", True)):
        context = {"aws:ViaAWSService": value}
        assert is_allowed([allow()], organization={"guard.json": guard}, context=context) == expected
