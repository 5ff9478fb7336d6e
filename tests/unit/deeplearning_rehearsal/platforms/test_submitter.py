"""A rehearsal submits training jobs as a role of the stack that may create them."""

from typing import Any

import pytest

from deeplearning_rehearsal.platforms.sagemaker import find_submitter


def make_template(action: str, kind: str, **holders: Any) -> dict[str, Any]:
    """Return a template with a policy, and with a role."""
    document = {"Statement": [{"Effect": "Allow", "Action": ["sqs:SendMessage", action], "Resource": "*"}]}
    policy = {"Type": kind, "Properties": {"PolicyDocument": document, **holders}}
    return {"Resources": {"Researchers": {"Type": "AWS::IAM::Role"}, "Rights": policy}}


@pytest.mark.parametrize("kind", ["AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"])
def test_a_role_that_may_create_training_jobs_is_the_submitter(kind: str) -> None:
    template = make_template("sagemaker:CreateTrainingJob", kind, Roles=[{"Ref": "Researchers"}])
    assert find_submitter(template) == "Researchers"


def test_other_roles_users_and_stacks_without_either_have_no_submitter() -> None:
    kind = "AWS::IAM::ManagedPolicy"
    other = make_template("sagemaker:DescribeTrainingJob", kind, Roles=[{"Ref": "Researchers"}])
    user = make_template("sagemaker:CreateTrainingJob", kind, Users=[{"Ref": "Anna"}])
    foreign = make_template("sagemaker:CreateTrainingJob", kind, Roles=["imported", {"Ref": "Parameter"}])
    assert [find_submitter(each) for each in (other, user, foreign, {"Resources": {}})] == [""] * 4
