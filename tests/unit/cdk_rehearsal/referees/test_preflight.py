"""Rules of cdk-preflight, each with what AWS says in the package's rule, on properties that this library emits."""

from typing import Any

import pytest

from cdk_rehearsal.referees import validation_engine
from cdk_rehearsal.referees.judge import judge_template


def _find(kind: str, properties: dict[str, Any]) -> list[str]:
    template = {"Resources": {"Made": {"Type": kind, "Properties": properties}}}
    return [found.name for found in judge_template(template, "us-east-1", {})]


def _expire(days: int) -> dict[str, Any]:
    transitions = [{"StorageClass": "STANDARD_IA", "TransitionInDays": 30}]
    return {"Id": "old", "Status": "Enabled", "ExpirationInDays": days, "Transitions": transitions}


@pytest.mark.parametrize(
    ("rule", "kind", "refused", "taken"),
    [
        (
            "pf-s3-lifecycle-days-order",
            "AWS::S3::Bucket",
            {"LifecycleConfiguration": {"Rules": [_expire(30)]}},
            {"LifecycleConfiguration": {"Rules": [_expire(31)]}},
        ),
        (
            "pf-elbv2-lb-idle-timeout-range",
            "AWS::ElasticLoadBalancingV2::LoadBalancer",
            {"LoadBalancerAttributes": [{"Key": "idle_timeout.timeout_seconds", "Value": "4001"}]},
            {"LoadBalancerAttributes": [{"Key": "idle_timeout.timeout_seconds", "Value": "4000"}]},
        ),
    ],
)
def test_a_rule_that_an_account_proved_refuses(
    rule: str, kind: str, refused: dict[str, Any], taken: dict[str, Any]
) -> None:
    subnets = {"Subnets": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]} if "Balancing" in kind else {}
    assert rule in _find(kind, {**subnets, **refused})
    assert rule not in _find(kind, {**subnets, **taken})


def test_a_value_that_a_condition_chooses_is_resolved_and_one_of_a_deployment_is_none() -> None:
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


def test_a_crash_of_the_engine_is_told_and_is_no_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(validation_engine, "_ask", lambda _: {"crash": "RuntimeError: unreachable"})
    assert _find("AWS::S3::Bucket", {"LifecycleConfiguration": {"Rules": [_expire(30)]}}) == []
    assert "could not read the template: RuntimeError: unreachable" in capsys.readouterr().err
