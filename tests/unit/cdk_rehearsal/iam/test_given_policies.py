"""Policies from files, and the calls of CloudFormation that they decide."""

import json
from importlib import resources

import pytest

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.iam import deployment_calls
from cdk_rehearsal.iam.deployment_calls import find_deployment_needs
from cdk_rehearsal.iam.given_policies import read_given_policies

ROLE = "arn:aws:iam::123456789012:role/corp/node"


class Account:
    """An account with one role, in a profile, and its boundary."""

    account_id, region, url_suffix = "123456789012", "us-east-1", "amazonaws.com"

    def arn(self, service, resource):
        return f"arn:aws:{service}:{self.region}:{self.account_id}:{resource}"

    def find_role(self, name):
        return ROLE if name in ("node", ROLE) else ""

    def find_profile_role(self, name):
        return ROLE if name == "profile" else ""

    def find_boundary(self, _role):
        return "arn:aws:iam::123456789012:policy/boundary", "{}"


def find(operation, **parameters):
    """Return the needs of a call: action, resource, and the condition keys."""
    needs = find_deployment_needs(operation, parameters, Account())
    return [(each.need.action, each.need.resource, dict(each.need.context)) for each in needs]


def write(folder, name, *statements):
    (folder / name).write_text(json.dumps({"Version": "2012-10-17", "Statement": list(statements)}))
    return folder / name


def test_files_that_allow_nothing_stand_beside_the_policy_that_every_level_has(tmp_path):
    """AWS Organizations user guide, "SCP evaluation": without it no call would be allowed."""
    guard = write(tmp_path, "guard.json", {"Effect": "Deny", "Action": "sqs:*", "Resource": "*"})
    some = write(tmp_path, "some.json", {"Effect": "Allow", "Action": "sns:*", "Resource": "*"})

    def list_names(*files):
        return [each.name for each in read_given_policies(files, None, {}).list_organization()]

    assert list_names() == []
    assert list_names(guard) == [str(guard), "FullAWSAccess"]
    assert list_names(guard, some) == [str(guard), str(some)]


@pytest.mark.parametrize("text", [None, "{", "[]", '{"Version": "2020"}', '{"Statement": [{"Effect": "Allow"}]}'])
def test_a_file_that_is_no_policy_is_refused_by_its_name(tmp_path, text):
    file = tmp_path / "policy.json"
    if text is not None:
        file.write_text(text)
    for arguments in (([file], None, {}), ([], file, {}), ([], None, {"boundary": file})):
        with pytest.raises(
            UnavailableError, match=r"a policy must be a file of JSON as IAM takes it, got .*policy\.json"
        ):
            read_given_policies(*arguments)


def test_the_actions_of_deployments_are_those_of_the_service_authorization_reference():
    text = resources.files("cfnlint").joinpath("data/AdditionalSpecs/Policies.json").read_text(encoding="utf-8")
    reference = json.loads(text)
    for operation, row in deployment_calls._ROWS.items():
        service, _, action = (row.action or operation.replace(".", ":")).partition(":")
        known = reference[service]["Actions"].get(action.lower())
        assert known is not None, operation
        assert bool(known.get("Resources")) == (row.targets is not deployment_calls._everything), operation


def test_creation_of_a_role_is_decided_by_its_path_its_boundary_and_its_tags():
    tags = [{"Key": "team", "Value": "a"}, {"Key": "aws:cloudformation:stack-name", "Value": "s"}]
    assert find("iam.CreateRole", RoleName="node", Path="/corp/", PermissionsBoundary="b", Tags=tags) == [
        ("iam:CreateRole", ROLE, {"aws:RequestTag/team": "a", "aws:TagKeys": ("team",), "iam:PermissionsBoundary": "b"})
    ]
    (need,) = find_deployment_needs("iam.CreateRole", {"RoleName": "node"}, Account())
    assert "iam:permissionsboundary" in need.absent


def test_a_policy_for_a_role_is_decided_by_the_boundary_of_the_role():
    """Service Authorization Reference, "AWS Identity and Access Management (IAM)", `iam:PermissionsBoundary`."""
    boundary = {"iam:PermissionsBoundary": "arn:aws:iam::123456789012:policy/boundary"}
    assert find("iam.AttachRolePolicy", RoleName="node", PolicyArn="p") == [
        ("iam:AttachRolePolicy", ROLE, {**boundary, "iam:PolicyARN": "p"})
    ]


def test_a_function_and_a_launch_hand_their_roles_over():
    function = "arn:aws:lambda:us-east-1:123456789012:function:f"
    passed = ("iam:PassRole", ROLE, {"iam:PassedToService": "lambda.amazonaws.com"})
    assert find("lambda.CreateFunction", FunctionName="f", Role=ROLE) == [
        ("lambda:CreateFunction", function, {}),
        passed,
    ]
    launch = find("ec2.RunInstances", InstanceType="t3.micro", IamInstanceProfile={"Name": "profile"}, SubnetId="s-1")
    start = "arn:aws:ec2:us-east-1:123456789012:"
    assert launch == [
        ("ec2:RunInstances", f"{start}instance/*", {"ec2:InstanceType": "t3.micro"}),
        ("ec2:RunInstances", f"{start}network-interface/*", {}),
        ("ec2:RunInstances", f"{start}volume/*", {}),
        ("ec2:RunInstances", f"{start}subnet/s-1", {}),
        ("iam:PassRole", ROLE, {"iam:PassedToService": "ec2.amazonaws.com"}),
    ]


def test_of_a_call_that_is_not_listed_the_action_and_the_tags_are_known():
    (need,) = find_deployment_needs("fsx.CreateFileSystem", {"Tags": [{"Key": "team", "Value": "a"}]}, Account())
    assert (need.need.action, need.is_resource_known) == ("fsx:CreateFileSystem", False)
    assert need.need.context == {"aws:RequestTag/team": "a", "aws:TagKeys": ("team",)}
