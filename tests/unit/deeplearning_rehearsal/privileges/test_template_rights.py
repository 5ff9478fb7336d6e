"""Rights that a template gives, as the proof of privileges reads them."""

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
