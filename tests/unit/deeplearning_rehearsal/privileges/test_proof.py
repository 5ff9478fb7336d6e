"""Grants that each call needs, unused grants, and the removal of one grant from a template."""

import json
from dataclasses import replace

import pytest

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.iam.call_record import CallRecord, RecordedCall
from cdk_rehearsal.iam.evaluation import Decision
from cdk_rehearsal.iam.request import Caller, Request
from deeplearning_rehearsal.privileges import proof as proof_module
from deeplearning_rehearsal.privileges.grants import count_allowed, expand_roles, find_needed
from deeplearning_rehearsal.privileges.proof import prove, render_proof
from deeplearning_rehearsal.privileges.template_rights import read_template_rights, strip_grant

VIA = ["dynamodb.us-east-1.amazonaws.com", "sqs.us-east-1.amazonaws.com"]
QUEUE = {"Fn::GetAtt": ["QueueABCDEF01", "Arn"]}
ROOT = {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}}


def make_template(*more):
    key = {"Fn::GetAtt": ["KeyABCDEF01", "Arn"]}
    statements = [
        {"Effect": "Allow", "Action": ["sqs:SendMessage", "sqs:ReceiveMessage"], "Resource": QUEUE},
        {
            "Effect": "Allow",
            "Action": "kms:Decrypt",
            "Resource": key,
            "Condition": {"StringEquals": {"kms:ViaService": VIA}},
        },
        *more,
    ]
    admit = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": ROOT}
    return {
        "Resources": {
            "QueueABCDEF01": {"Type": "AWS::SQS::Queue"},
            "KeyABCDEF01": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {"Statement": [admit]}}},
            "RoleABCDEF01": {"Type": "AWS::IAM::Role", "Properties": {}},
            "Rights": {
                "Type": "AWS::IAM::ManagedPolicy",
                "Properties": {
                    "PolicyDocument": {"Version": "2012-10-17", "Statement": statements},
                    "Roles": [{"Ref": "RoleABCDEF01"}],
                },
            },
        }
    }


def make_call(rights, action, resource, **context):
    (role,) = rights.roles
    return RecordedCall("worker", role, action, resource, tuple((k, (v,)) for k, v in context.items()), is_allowed=True)


def make_calls(rights):
    key = rights.find("key", "Key")
    return {
        make_call(rights, "sqs:SendMessage", rights.find("queue", "Queue")): 3,
        make_call(rights, "kms:Decrypt", key, **{"kms:viaservice": VIA[1]}): 4,
    }


def name(grants):
    return sorted(f"{grant.action} {grant.condition[-45:]}".strip() for grant in grants)


def test_splits_rights_into_grants_by_action_resource_and_value_of_a_condition():
    grants = [held.grant for held in expand_roles(read_template_rights(make_template()))]
    assert [(grant.action, grant.resource) for grant in grants] == [
        ("sqs:SendMessage", "arn:aws:sqs:us-east-1:<account>:<QueueABCDEF01>"),
        ("sqs:ReceiveMessage", "arn:aws:sqs:us-east-1:<account>:<QueueABCDEF01>"),
        ("kms:Decrypt", "arn:aws:kms:us-east-1:<account>:key/<KeyABCDEF01>"),
        ("kms:Decrypt", "arn:aws:kms:us-east-1:<account>:key/<KeyABCDEF01>"),
    ]
    assert {grant.role for grant in grants} == {"RoleABCDEF01"}


def test_a_grant_is_needed_when_a_call_is_denied_without_it_and_never_when_another_covers_the_call():
    rights = read_template_rights(make_template())
    needed = find_needed(rights, expand_roles(rights), make_calls(rights))
    assert [(grant.action, VIA[1] in grant.condition) for grant in needed] == [
        ("sqs:SendMessage", False),
        ("kms:Decrypt", True),
    ]
    twice = read_template_rights(make_template({"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}))
    assert [grant.action for grant in find_needed(twice, expand_roles(twice), make_calls(twice))] == ["kms:Decrypt"]


def test_every_grant_can_be_taken_out_of_a_template_and_only_it():
    before = [held.grant for held in expand_roles(read_template_rights(make_template(), "s"))]
    for grant in before:
        template = make_template()
        assert strip_grant(template, grant, "s")
        after = [held.grant for held in expand_roles(read_template_rights(template, "s"))]
        assert after == [other for other in before if other != grant]
        assert not strip_grant(template, grant, "s")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a rehearsal's record; the list of forbidden calls is about other stacks."""
    monkeypatch.setattr(proof_module, "judge_forbidden_calls", lambda rights: ())
    rights = read_template_rights(make_template())
    document = {
        "case": "one",
        "calls": [call.to_document() | {"count": count} for call, count in make_calls(rights).items()],
        "left_out": 0,
        "denials": {},
        **{
            field: getattr(rights, field)
            for field in ("account", "region", "roles", "resources", "names", "boundaries")
        },
    }
    (tmp_path / "calls.json").write_text(json.dumps(document))
    return tmp_path


def test_a_proof_counts_calls_and_names_grants_that_nothing_needs(folder):
    proof = prove([folder])
    assert (proof.recorded, proof.allowed) == (7, 7)
    assert sorted(grant.action for grant in proof.unused) == ["kms:Decrypt", "sqs:ReceiveMessage"]
    assert not proof.is_complete
    document = proof.to_document()
    assert (document["recorded"], document["allowed"], len(document["unused"])) == (7, 7, 2)
    assert [entry["cases"] for entry in document["grants"] if entry["action"] == "sqs:SendMessage"] == [
        {"one": "sqs:SendMessage on arn:aws:sqs:us-east-1:<account>:<QueueABCDEF01>"}
    ]
    assert "NEEDED BY NOTHING" in render_proof(proof)


def test_a_call_that_the_policies_do_not_allow_is_counted_as_such(folder):
    document = json.loads((folder / "calls.json").read_text())
    document["calls"][0]["action"] = "sqs:PurgeQueue"
    (folder / "calls.json").write_text(json.dumps(document))
    assert (prove([folder]).recorded, prove([folder]).allowed) == (7, 4)


def test_a_case_without_a_record_proves_nothing(tmp_path):
    with pytest.raises(UnavailableError, match=r"calls\.json"):
        prove([tmp_path])


def test_calls_are_recorded_once_each_with_what_policies_looked_at_and_refusals_by_their_message():
    record = CallRecord()
    caller = Caller("arn:session", "123456789012", "arn:role")
    request = Request(caller, "sqs:SendMessage", "arn:q", {"aws:securetransport": ("true",), "aws:userid": ("x",)})
    for _ in range(3):
        record.add("worker", request, Decision(True, "identity allows", frozenset({"aws:securetransport"})))  # noqa: FBT003
    record.add("worker", request, Decision(False, "nothing allows", frozenset()))  # noqa: FBT003
    (allowed, count), (denied, _) = record.counts().items()
    assert (count, allowed.context, denied.is_allowed) == (3, (("aws:securetransport", ("true",)),), False)
    assert RecordedCall.from_document(json.loads(json.dumps(allowed.to_document()))) == allowed
    assert "not authorized to perform: sqs:SendMessage" in record.denials()["sqs:SendMessage"]


def test_each_kind_of_event_that_a_role_may_send_in_a_batch_is_a_grant_of_its_own():
    bus = "arn:aws:events:us-east-1:123456789012:event-bus/default"
    kinds = {"ForAllValues:StringEquals": {"events:detail-type": ["Formed", "Failed"]}}
    template = make_template({"Effect": "Allow", "Action": "events:PutEvents", "Resource": bus, "Condition": kinds})
    rights = read_template_rights(template)
    calls = {make_call(rights, "events:PutEvents", bus, **{"events:detail-type": "Formed"}): 1}
    (needed,) = find_needed(rights, expand_roles(rights), calls)
    assert '"Formed"' in needed.condition
    assert '"Failed"' not in needed.condition
    (role,) = rights.roles
    batch = (("events:detail-type", ("Formed", "Failed")),)
    both = {RecordedCall("worker", role, "events:PutEvents", bus, batch, is_allowed=True): 1}
    assert len(find_needed(rights, expand_roles(rights), both)) == 2
    assert count_allowed(rights, expand_roles(rights), both) == 1


def test_a_role_does_not_need_a_right_to_an_object_that_the_policy_of_the_bucket_gives_it():
    put = {"Effect": "Allow", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::logs/*"}
    rights = read_template_rights(make_template(put))
    call = {make_call(rights, "s3:PutObject", "arn:aws:s3:::logs/a/b"): 1}
    assert [grant.action for grant in find_needed(rights, expand_roles(rights), call)] == ["s3:PutObject"]
    policy = {"Version": "2012-10-17", "Statement": [put | {"Principal": {"AWS": next(iter(rights.roles))}}]}
    open_bucket = replace(rights, resources={**rights.resources, "arn:aws:s3:::logs": policy})
    assert not find_needed(open_bucket, expand_roles(open_bucket), call)
