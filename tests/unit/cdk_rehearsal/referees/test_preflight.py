"""All referees on properties that this library emits; most of what they refuse, cdk-preflight alone finds."""

import pytest

from cdk_rehearsal.referees.judge import judge_template
from tests.unit.cdk_rehearsal.referees.refused_and_taken import PAIRS


def _find(kind, properties):
    template = {"Resources": {"Made": {"Type": kind, "Properties": properties}}}
    return [found.name for found in judge_template(template, "us-east-1", {})]


def _expire(days):
    transitions = [{"StorageClass": "STANDARD_IA", "TransitionInDays": 30}]
    return {"Id": "old", "Status": "Enabled", "ExpirationInDays": days, "Transitions": transitions}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_what_aws_refuses_is_refused_and_its_neighbour_is_taken(pair):
    assert _find(pair.kind, pair.refused), pair.source
    assert _find(pair.kind, pair.taken) == []


def test_a_value_that_a_condition_chooses_is_resolved_and_one_of_a_deployment_is_none():
    rules = [{"Fn::If": ["Short", _expire(30), _expire(90)]}]
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"LifecycleConfiguration": {"Rules": rules}}}
    topic = {"Type": "AWS::SNS::Topic", "Properties": {"TopicName": {"Fn::Sub": "${Bucket}.fifo"}, "FifoTopic": True}}
    resources = {"Bucket": bucket, "Topic": topic}
    template = {
        "Parameters": {"Days": {"Type": "String", "Default": "few"}},
        "Conditions": {"Short": {"Fn::Equals": [{"Ref": "Days"}, "few"]}},
        "Resources": resources,
    }
    (found,) = judge_template(template, "us-east-1", {}, {"Bucket": "App/Bucket/Resource"})
    assert (found.name, found.construct) == ("pf-s3-lifecycle-days-order", "App/Bucket/Resource")
    assert judge_template(template, "us-east-1", {"Days": "many"}) == ()


def test_a_rule_at_which_the_engine_crashes_is_told_and_hides_no_other(capsys):
    trust = {"Version": "2012-10-17", "Statement": []}
    # `pf-iam-name-format` of cdk-preflight 1.9.1 has no value of its own for the second role.
    roles = {name: {"RoleName": name, "AssumeRolePolicyDocument": trust} for name in ("a b", "c d")}
    template = {
        "Resources": {
            "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"LifecycleConfiguration": {"Rules": [_expire(30)]}}},
            **{f"Role{name[0]}": {"Type": "AWS::IAM::Role", "Properties": role} for name, role in roles.items()},
        }
    }
    found = [found.name for found in judge_template(template, "us-east-1", {})]
    assert "pf-s3-lifecycle-days-order" in found
    assert "pf-iam-name-format" not in found
    assert "engine crashed: Custom rule package" in capsys.readouterr().err


def test_what_the_package_has_from_documents_alone_is_a_note(capsys):
    window = {"WindowUnit": "HOURS", "Window": 1}
    selection = {"ProtectedResourceType": "Nothing", "ProtectedResourceArns": ["*"], "IamRoleArn": "*", **window}
    found = _find("AWS::Backup::RestoreTestingSelection", selection)
    assert "pf-backup-restore-testing-selection-protected-resource-type" not in found
    assert "cdk-preflight pf-backup-restore-testing-selection-protected-resource-type" in capsys.readouterr().err
