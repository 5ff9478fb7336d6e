"""Statements about the stacks of every platform beside `TrainingCluster`: EKS, EMR and SageMaker."""

import re

import pytest
from aws_cdk import aws_sns as sns

from deeplearning_cdk import EksTraining, EmrTraining, SageMakerTraining
from tests.unit.deeplearning_cdk.conftest import render
from tests.unit.deeplearning_cdk.test_public_api import FLAGS


@pytest.fixture(scope="module", params=[EksTraining, EmrTraining, SageMakerTraining])
def platform(request):
    return request.param


@pytest.fixture(scope="module")
def synthesis(platform, make_once):
    return make_once(platform)()


def test_feature_flags_of_the_users_app_change_nothing(platform, synthesis, make_stack, read_stack):
    stack = make_stack(**FLAGS)
    platform(stack, "Training")
    assert read_stack(stack).template == synthesis.template


def test_the_users_own_topic_receives_the_failures_of_jobs(platform, make_stack, read_stack):
    stack = make_stack()
    platform(stack, "Training", alarm_topic=sns.Topic(stack, "Mine"))
    found = read_stack(stack)
    (name,) = found.of_type("AWS::SNS::Topic")
    assert found.only("AWS::Events::Rule")["Targets"][0]["Arn"] == {"Ref": name}


def test_descriptions_of_groups_and_rules_have_only_characters_that_ec2_takes(synthesis):
    """EC2 API reference, CreateSecurityGroup and IpRange: descriptions of groups and rules."""
    texts = [
        render(entry["Properties"][name])
        for entry in synthesis.template["Resources"].values()
        if entry["Type"].startswith("AWS::EC2::SecurityGroup")
        for name in ("Description", "GroupDescription")
        if name in entry["Properties"]
    ]
    assert len(texts) > 3
    assert [text for text in texts if not re.fullmatch(r"[A-Za-z0-9 ._:/()#,@\[\]+=&;{}!$*-]{1,255}", text)] == []
