"""Rights that a template gives, as the proof of privileges reads them."""

import pytest

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.iam.call_record import RecordedCall
from deeplearning_rehearsal.privileges.grants import count_allowed, expand_roles
from deeplearning_rehearsal.privileges.must_deny import ForbiddenCall, judge_call
from deeplearning_rehearsal.privileges.template_rights import read_template_rights

ACCOUNT = "123456789012"


def make_template(*, path):
    """Return a template with a role below a path, which a policy allows to pass another one."""
    trust = {
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]
    }
    passed = {"Fn::GetAtt": ["PassedRole1A2B3C4D", "Arn"]}
    statement = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": passed}
    role = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": trust, "Path": path}}
    policy = {
        "PolicyName": "Pass",
        "PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "Roles": [{"Ref": "NodeRole1A2B3C4D"}],
    }
    return {
        "Resources": {
            "NodeRole1A2B3C4D": role,
            "PassedRole1A2B3C4D": role,
            "Policy": {"Type": "AWS::IAM::Policy", "Properties": policy},
        },
        "Parameters": {"Team": {"Type": "String", "Default": "/corp/team/"}},
    }


def test_arns_of_roles_have_their_paths_in_roles_in_policies_and_in_forbidden_calls():
    for path in ("/corp/team/", {"Ref": "Team"}):
        rights = read_template_rights(make_template(path=path))
        start = f"arn:aws:iam::{ACCOUNT}:role/corp/team/sample-"
        assert set(rights.roles) == {f"{start}NodeRole1A2B3C4D", f"{start}PassedRole1A2B3C4D"}
        assert rights.find_granted("iam:PassRole") == rights.find("role", "PassedRole") == f"{start}PassedRole1A2B3C4D"


def make_bounded_template(*statements):
    """Return the template with a boundary of the role that may pass another one."""
    template = make_template(path="/corp/")
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    template["Resources"]["Limit"] = {"Type": "AWS::IAM::ManagedPolicy", "Properties": {"PolicyDocument": document}}
    node = template["Resources"]["NodeRole1A2B3C4D"]
    template["Resources"]["NodeRole1A2B3C4D"] = {
        **node,
        "Properties": {**node["Properties"], "PermissionsBoundary": {"Ref": "Limit"}},
    }
    return template


def test_a_grant_outside_of_the_boundary_of_its_role_is_no_grant():
    inside = {"Effect": "Allow", "Action": "iam:Pass*", "Resource": "*"}
    outside = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}
    for statements, expected in (([inside], ["iam:PassRole"]), ([outside], []), ([outside, inside], ["iam:PassRole"])):
        rights = read_template_rights(make_bounded_template(*statements))
        assert [held.grant.action for held in expand_roles(rights)] == expected


PASS = ForbiddenCall(
    name="pass the other role",
    reason="nobody needs it",
    roles=("NodeRole",),
    action="iam:PassRole",
    resource="{role:PassedRole}",
)


def test_a_forbidden_call_is_denied_by_a_boundary_that_does_not_allow_it():
    for action, expected in (("iam:*", True), ("sqs:*", False)):
        template = make_bounded_template({"Effect": "Allow", "Action": action, "Resource": "*"})
        (outcome,) = judge_call(read_template_rights(template), PASS)
        assert outcome.decision.is_allowed == expected


def test_a_recorded_call_outside_of_the_boundary_is_not_counted_as_allowed():
    for resource, expected in (("*", 1), ("arn:aws:iam::123456789012:role/other", 0)):
        template = make_bounded_template({"Effect": "Allow", "Action": "iam:PassRole", "Resource": resource})
        rights = read_template_rights(template)
        role = next(role for role in rights.roles if "NodeRole" in role)
        passed = rights.find("role", "PassedRole")
        calls = {RecordedCall("other", role, "iam:PassRole", passed, (), is_allowed=True): 1}
        assert count_allowed(rights, expand_roles(rights), calls) == expected


def test_a_boundary_that_the_template_does_not_make_is_refused_by_its_name():
    template = make_bounded_template()
    node = template["Resources"]["NodeRole1A2B3C4D"]["Properties"]
    node["PermissionsBoundary"] = f"arn:aws:iam::{ACCOUNT}:policy/corp/boundary"
    with pytest.raises(RehearsalError, match="got arn:aws:iam::123456789012:policy/corp/boundary; its rights are not"):
        read_template_rights(template)
    node["PermissionsBoundary"] = "arn:aws:iam::aws:policy/AmazonSQSFullAccess"
    assert not expand_roles(read_template_rights(template))
