"""IAM's documented evaluation logic, case by case, and what must hold for any policy."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_rehearsal.errors import PolicyError
from cdk_rehearsal.iam.evaluation import evaluate, explain_denial
from cdk_rehearsal.iam.policy import read_policy, read_policy_text
from cdk_rehearsal.iam.request import Caller, Request, make_context

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/Worker"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/Worker/i-1"
QUEUE = f"arn:aws:sqs:us-east-1:{ACCOUNT}:report"
KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/k1"
WORKER = Caller(SESSION, ACCOUNT, ROLE, user_id="AROA1:i-1")
AUTO_SCALING = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"


def document(*statements, version="2012-10-17"):
    return {"Version": version, "Statement": list(statements)}


def allow(action="sqs:SendMessage", resource=QUEUE, **rest):
    return {"Effect": "Allow", "Action": action, "Resource": resource, **rest}


def deny(action="sqs:SendMessage", resource=QUEUE, **rest):
    return allow(action, resource, **rest) | {"Effect": "Deny"}


def decide(identity=(), resource=None, *, action="sqs:SendMessage", on=QUEUE, caller=WORKER, owner="", **context):
    request = Request(caller, action, on, make_context(caller, context.get("context", {})), owner)
    theirs = None if resource is None else read_policy(document(*resource), "resource")
    return evaluate(request, read_policy(document(*identity), "identity"), theirs)


TLS_ONLY = {"Condition": {"Bool": {"aws:SecureTransport": "false"}}}


@pytest.mark.parametrize(
    ("identity", "resource", "expected"),
    [
        ([], None, "nothing allows"),
        ([allow()], None, "identity allows"),
        ([allow(), deny()], None, "identity denies"),
        ([allow()], [deny(Principal="*")], "resource denies"),
        ([allow()], [deny(Principal={"AWS": ACCOUNT})], "resource denies"),
        ([allow()], [deny(Principal="*", **TLS_ONLY)], "identity allows"),
        ([], [allow(Principal={"AWS": ROLE})], "resource allows"),
        ([], [allow(Principal={"AWS": SESSION})], "resource allows"),
        ([], [allow(Principal="*")], "resource allows"),
        ([], [allow(Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:root"})], "nothing allows"),
        ([], [allow(Principal={"AWS": f"{ROLE}2"})], "nothing allows"),
        ([], [allow(Principal={"Service": "sns.amazonaws.com"})], "nothing allows"),
        ([allow()], [deny(NotPrincipal={"AWS": [ROLE, SESSION]})], "identity allows"),
        ([allow()], [deny(NotPrincipal={"AWS": f"{ROLE}2"})], "resource denies"),
        ([allow("sqs:*")], None, "identity allows"),
        ([allow("SQS:sendmessage")], None, "identity allows"),
        ([allow("sqs:Send?essage")], None, "identity allows"),
        ([allow("sqs:Receive*")], None, "nothing allows"),
        ([{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}], None, "identity allows"),
        ([{"Effect": "Allow", "NotAction": "sqs:*", "Resource": "*"}], None, "nothing allows"),
        ([{"Effect": "Allow", "Action": "sqs:*", "NotResource": QUEUE}], None, "nothing allows"),
        ([{"Effect": "Allow", "Action": "sqs:*", "NotResource": f"{QUEUE}2"}], None, "identity allows"),
        ([allow(resource=f"arn:aws:sqs:*:{ACCOUNT}:rep*")], None, "identity allows"),
        ([allow(resource="arn:aws:sqs:*:*:*")], None, "identity allows"),
        ([allow(resource=f"arn:aws:sqs:us-east-1:{ACCOUNT}:REPORT")], None, "nothing allows"),
        ([allow(resource=f"arn:aws:sqs:us-west-2:{ACCOUNT}:report")], None, "nothing allows"),
    ],
)
def test_decides_as_the_user_guide_says(identity, resource, expected):
    decision = decide(identity, resource)
    assert decision.reason == expected
    assert decision.is_allowed == (expected in {"identity allows", "resource allows"})


@pytest.mark.parametrize(
    ("identity", "resource", "is_allowed"),
    [
        ([allow()], None, False),
        ([], [allow(Principal={"AWS": ROLE})], False),
        ([allow()], [allow(Principal={"AWS": ROLE})], True),
        ([allow()], [allow(Principal={"AWS": ACCOUNT})], True),
    ],
)
def test_asks_both_sides_across_accounts(identity, resource, is_allowed):
    assert decide(identity, resource, owner="999999999999").is_allowed == is_allowed


ROOT = allow("kms:*", "*", Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:root"})


@pytest.mark.parametrize(
    ("identity", "resource", "is_allowed"),
    [
        ([allow("kms:Decrypt", KEY)], [], False),
        ([allow("kms:Decrypt", KEY)], [ROOT], True),
        ([], [ROOT], False),
        ([], [allow("kms:Decrypt", "*", Principal={"AWS": ROLE})], True),
        ([allow("kms:Decrypt", KEY)], [allow("kms:Encrypt", "*", Principal={"AWS": ACCOUNT})], False),
    ],
)
def test_a_key_counts_identity_policies_only_where_its_own_policy_hands_over(identity, resource, is_allowed):
    assert decide(identity, resource, action="kms:Decrypt", on=KEY).is_allowed == is_allowed


def test_a_service_needs_a_resource_policy_that_names_it():
    caller = Caller.of_service("events.amazonaws.com")
    statement = allow(Principal={"Service": "events.amazonaws.com"})
    assert decide((), [statement], caller=caller).is_allowed
    assert not decide((), [allow(Principal={"AWS": "*"})], caller=caller).is_allowed
    assert not decide((), [statement], caller=Caller.of_service("sns.amazonaws.com")).is_allowed
    assert not decide((), None, caller=caller).is_allowed


def test_a_key_admits_the_service_linked_role_of_auto_scaling_by_condition():
    keys = {"StringEquals": {"kms:CallerAccount": ACCOUNT}, "ArnLike": {"aws:PrincipalArn": AUTO_SCALING}}
    policy = [allow("kms:GenerateDataKey*", "*", Principal={"AWS": "*"}, Condition=keys)]
    role = Caller("arn:aws:sts::1:assumed-role/AWSServiceRoleForAutoScaling/x", ACCOUNT, AUTO_SCALING)
    context = {"kms:CallerAccount": ACCOUNT}
    for caller, is_allowed in ((role, True), (WORKER, False)):
        decision = decide((), policy, action="kms:GenerateDataKey", on=KEY, caller=caller, context=context)
        assert decision.is_allowed == is_allowed
    assert decision.keys == {"kms:calleraccount", "aws:principalarn"}


def test_an_action_without_a_resource_needs_the_star():
    describe = "autoscaling:DescribeAutoScalingGroups"
    assert decide([allow(describe, "*")], action=describe, on="*").is_allowed
    pattern = f"arn:aws:autoscaling:us-east-1:{ACCOUNT}:autoScalingGroup:*"
    assert not decide([allow(describe, pattern)], action=describe, on="*").is_allowed


def test_variables_stand_for_the_request_and_never_for_wildcards():
    statement = allow("logs:PutLogEvents", "arn:aws:logs:us-east-1:1:log-group:g:log-stream:${ec2:SourceInstanceARN}")
    stream = "arn:aws:logs:us-east-1:1:log-group:g:log-stream:"
    for value, end, is_allowed in (("i-1", "i-1", True), ("i-1", "i-2", False), ("*", "i-2", False)):
        found = decide(
            [statement],
            action="logs:PutLogEvents",
            on=stream + end,
            context={"ec2:SourceInstanceARN": value},
            owner=ACCOUNT,
        )
        assert found.is_allowed == is_allowed
    assert not decide([statement], action="logs:PutLogEvents", on=stream, owner=ACCOUNT).is_allowed
    old = read_policy(document(statement, version="2008-10-17"), "identity")
    request = Request(
        WORKER, "logs:PutLogEvents", stream + "i-1", make_context(WORKER, {"ec2:SourceInstanceARN": "i-1"}), ACCOUNT
    )
    assert not evaluate(request, old, None).is_allowed


def test_variables_have_defaults_and_escapes():
    for text, name in (("${aws:PrincipalTag/team, 'none'}", "none"), ("a${*}b", "a*b"), ("${$}{x}", "${x}")):
        resource = f"arn:aws:sqs:us-east-1:{ACCOUNT}:"
        assert decide([allow(resource=resource + text)], on=resource + name).is_allowed
        assert not decide([allow(resource=resource + text)], on=f"{resource}other").is_allowed


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (allow(Condition={"StringMatches": {"aws:userid": "x"}}), "StringMatches"),
        (allow(Condition={"ForSomeValue:StringEquals": {"aws:userid": "x"}}), "ForSomeValue"),
        (allow(Condition={"NullIfExists": {"aws:userid": "true"}}), "NullIfExists"),
        (allow(Condition={"NumericLessThan": {"aws:MultiFactorAuthAge": "soon"}}), "soon"),
        (allow(Condition={"IpAddress": {"aws:SourceIp": "10.0.0.300"}}), "10.0.0.300"),
        (allow(resource="arn:aws:sqs"), "six parts"),
        (allow(Effect="Permit"), "Permit"),
        (allow(Resources="*"), "Resources"),
        (allow(NotAction="iam:*"), "keep one"),
        ({"Effect": "Allow", "Resource": "*"}, "neither"),
        (allow(action=[]), "none"),
        (allow(Principal="*"), "no others"),
    ],
)
def test_refuses_what_it_does_not_know_instead_of_passing_over_it(broken, message):
    with pytest.raises(PolicyError, match=message):
        read_policy(document(broken), "identity")


@pytest.mark.parametrize("principal", [{"AWS": "arn:aws:iam::*:role/x"}, {"Robot": "x"}, "worker", {}])
def test_refuses_principals_that_are_none(principal):
    with pytest.raises(PolicyError, match="Principal"):
        read_policy(document(allow(Principal=principal)), "resource")


def test_refuses_a_version_and_a_text_that_are_none():
    with pytest.raises(PolicyError, match="2012-10-17"):
        read_policy(document(version="2020-01-01"), "identity")
    with pytest.raises(PolicyError, match="JSON"):
        read_policy_text("{", "identity")


def test_says_what_aws_says_when_it_refuses():
    request = Request(WORKER, "sqs:SendMessage", QUEUE, make_context(WORKER, {}))
    expected = (
        f"User: {SESSION} is not authorized to perform: sqs:SendMessage on resource: {QUEUE} "
        "because no identity-based policy allows the sqs:SendMessage action"
    )
    assert explain_denial(request, decide()) == expected
    denied = decide([allow()], [deny(Principal="*")])
    assert explain_denial(request, denied).endswith("with an explicit deny in a resource-based policy")


NAMES = st.text("abz*?-/", min_size=1, max_size=6)
STATEMENTS = st.builds(
    lambda effect, action, name: {
        **allow(f"sqs:{action}", f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"),
        "Effect": effect,
    },
    st.sampled_from(["Allow", "Deny"]),
    st.sampled_from(["*", "SendMessage", "Send*", "ReceiveMessage"]),
    NAMES,
)


@given(st.lists(STATEMENTS, max_size=5), st.lists(STATEMENTS, max_size=3), NAMES)
def test_more_denies_never_allow_and_more_allows_never_deny(statements, more, name):
    on = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"
    before = decide(statements, on=on).is_allowed
    denied = decide([*statements, *({**entry, "Effect": "Deny"} for entry in more)], on=on).is_allowed
    allowed = decide([*statements, *({**entry, "Effect": "Allow"} for entry in more)], on=on).is_allowed
    assert denied <= before <= allowed


@given(st.lists(STATEMENTS, max_size=5), NAMES, st.randoms())
def test_the_order_of_statements_is_of_no_account(statements, name, chance):
    on = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"
    shuffled = list(statements)
    chance.shuffle(shuffled)
    assert decide(statements, on=on) == decide(shuffled, on=on)


@given(NAMES)
def test_a_name_without_wildcards_covers_itself_alone(name):
    plain = name.replace("*", "x").replace("?", "y")
    resource = f"arn:aws:sqs:us-east-1:{ACCOUNT}:"
    assert decide([allow(resource=resource + plain)], on=resource + plain).is_allowed
    assert not decide([allow(resource=resource + plain)], on=f"{resource}{plain}z").is_allowed


def test_measure_evaluations():
    text = json.dumps(document(*(allow(f"sqs:A{n}") for n in range(12)), allow(), deny("sqs:X", **TLS_ONLY)))
    statements = read_policy_text(text, "identity")
    begin, count = time.process_time(), 5000
    for _ in range(count):
        request = Request(WORKER, "sqs:SendMessage", QUEUE, make_context(WORKER, {"aws:RequestedRegion": "us-east-1"}))
        assert evaluate(request, statements, None).is_allowed
    print(f"evaluations: {count / (time.process_time() - begin):,.0f} in a second of CPU, 14 statements each")
