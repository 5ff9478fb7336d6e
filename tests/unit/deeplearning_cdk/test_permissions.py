"""Every right that a cluster's roles have, exactly."""

from typing import Any

import pytest

from deeplearning_cdk import NodeImage

ASSETS = "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"
GROUPS = "arn:${AWS::Partition}:autoscaling:${AWS::Region}:${AWS::AccountId}:autoScalingGroup:*"
SESSION_MANAGER = {"Fn::Sub": "arn:${AWS::Partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"}


def _arn(synthesis: Any, kind: str, part: str = "") -> dict[str, Any]:
    (name,) = (name for name in synthesis.of_type(kind) if part in name)
    return {"Fn::GetAtt": [name, "Arn"]}


def _allow(actions: Any, resources: Any, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources, **more}


def _read_assets(statement: dict[str, Any]) -> list[str]:
    """Check that a statement reads objects of the asset bucket, and return their names' endings."""
    assert statement["Action"] == "s3:GetObject"
    resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
    keys = []
    for resource in resources:
        arn, partition, service, bucket, key = resource["Fn::Join"][1]
        assert (arn, partition, service, bucket) == ("arn:", {"Ref": "AWS::Partition"}, ":s3:::", {"Fn::Sub": ASSETS})
        assert "*" not in key
        keys.append(key.rpartition(".")[2])
    return keys


def test_d45_master_reads_its_queues_writes_the_state_and_rings_the_workers(synthesize: Any) -> None:
    synthesis = synthesize()
    cluster = synthesis.only("AWS::Lambda::Function")["Environment"]["Variables"]["DEEPLEARNING_CLUSTER"]
    *statements, assets = synthesis.statements("MasterRole")
    assert statements == [
        _allow(
            "autoscaling:SetInstanceHealth",
            {"Fn::Sub": GROUPS},
            Condition={"StringEquals": {"autoscaling:ResourceTag/deeplearning:cluster": cluster}},
        ),
        _allow(["dynamodb:GetItem", "dynamodb:PutItem"], _arn(synthesis, "AWS::DynamoDB::Table")),
        _allow(
            ["sqs:DeleteMessage", "sqs:ReceiveMessage"],
            [_arn(synthesis, "AWS::SQS::Queue", "MasterQueue"), _arn(synthesis, "AWS::SQS::Queue", "ReportQueue")],
        ),
        _allow("sqs:SendMessage", _arn(synthesis, "AWS::SQS::Queue", "WorkerQueue")),
    ]
    assert _read_assets(assets) == ["zip"]


@pytest.mark.fault(24)
def test_d45_worker_only_reads_the_state_hears_rings_and_reports(synthesize: Any) -> None:
    synthesis = synthesize()
    *statements, assets = synthesis.statements("WorkerRole")
    assert statements == [
        _allow("dynamodb:GetItem", _arn(synthesis, "AWS::DynamoDB::Table")),
        _allow("sqs:ReceiveMessage", _arn(synthesis, "AWS::SQS::Queue", "WorkerQueue")),
        _allow("sqs:SendMessage", _arn(synthesis, "AWS::SQS::Queue", "ReportQueue")),
    ]
    assert _read_assets(assets) == ["zip"]


@pytest.mark.parametrize("role", ["MasterRole", "WorkerRole"])
def test_nodes_have_session_manager_and_no_other_managed_policy(synthesize: Any, role: str) -> None:
    properties = synthesize().part("AWS::IAM::Role", role)["Properties"]
    assert properties["ManagedPolicyArns"] == [SESSION_MANAGER]
    assert "RoleName" not in properties
    (trust,) = properties["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "ec2.amazonaws.com"}


@pytest.mark.parametrize("role", ["MasterRole", "WorkerRole"])
def test_nodes_mount_through_their_access_point_only_where_the_image_has_iam(synthesize: Any, role: str) -> None:
    synthesis = synthesize(image=NodeImage.deep_learning_amazon_linux())
    (file_system,) = synthesis.of_type("AWS::EFS::FileSystem")
    (access_point,) = synthesis.of_type("AWS::EFS::AccessPoint")
    prefix = "arn:${AWS::Partition}:elasticfilesystem:${AWS::Region}:${AWS::AccountId}:file-system/${Id}"
    assert synthesis.statements(role)[-1] == _allow(
        ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
        {"Fn::Sub": [prefix, {"Id": {"Ref": file_system}}]},
        Condition={
            "StringEquals": {"elasticfilesystem:AccessPointArn": {"Fn::GetAtt": [access_point, "Arn"]}},
        },
    )


def test_only_the_master_reads_the_run_script(synthesize: Any, tmp_path: Any) -> None:
    for name in ("setup.sh", "run.sh"):
        (tmp_path / name).write_text(f"#!/bin/bash\n# {name}\n")
    synthesis = synthesize(setup_script=str(tmp_path / "setup.sh"), run_script=str(tmp_path / "run.sh"))
    assert sorted(_read_assets(synthesis.statements("MasterRole")[-1])) == ["sh", "sh", "zip"]
    assert sorted(_read_assets(synthesis.statements("WorkerRole")[-1])) == ["sh", "zip"]


@pytest.mark.fault(24)
def test_d18_adjuster_changes_only_groups_that_have_its_clusters_tag(synthesize: Any) -> None:
    synthesis = synthesize()
    cluster = synthesis.only("AWS::Lambda::Function")["Environment"]["Variables"]["DEEPLEARNING_CLUSTER"]
    assert synthesis.statements("CapacityAdjusterRole") == [
        _allow(["logs:CreateLogStream", "logs:PutLogEvents"], _arn(synthesis, "AWS::Logs::LogGroup")),
        _allow(["dynamodb:GetItem", "dynamodb:PutItem"], _arn(synthesis, "AWS::DynamoDB::Table")),
        _allow("sqs:SendMessage", _arn(synthesis, "AWS::SQS::Queue", "MasterQueue")),
        _allow(["autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"], "*"),
        _allow(
            ["autoscaling:ResumeProcesses", "autoscaling:SetDesiredCapacity", "autoscaling:SuspendProcesses"],
            {"Fn::Sub": GROUPS},
            Condition={"StringEquals": {"autoscaling:ResourceTag/deeplearning:cluster": cluster}},
        ),
    ]
    assert "ManagedPolicyArns" not in synthesis.part("AWS::IAM::Role", "CapacityAdjusterRole")["Properties"]


def test_d62_the_only_star_is_for_calls_that_take_no_resource(synthesize: Any) -> None:
    synthesis = synthesize(image=NodeImage.deep_learning_amazon_linux())
    stars = [
        statement["Action"]
        for role in synthesis.of_type("AWS::IAM::Role").values()
        for policy in role["Properties"]["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if "*" in (statement["Resource"], *statement["Action"])
    ]
    assert stars == [["autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"]]


@pytest.mark.fault(19, 24, 35)
def test_adjuster_is_invoked_by_its_topic_and_its_timer_alone(synthesize: Any) -> None:
    synthesis = synthesize()
    (topic,) = synthesis.of_type("AWS::SNS::Topic")
    (timer,) = synthesis.of_type("AWS::Events::Rule")
    permissions = [entry["Properties"] for entry in synthesis.of_type("AWS::Lambda::Permission").values()]
    assert sorted((entry["Principal"], str(entry["SourceArn"])) for entry in permissions) == [
        ("events.amazonaws.com", str({"Fn::GetAtt": [timer, "Arn"]})),
        ("sns.amazonaws.com", str({"Ref": topic})),
    ]
    schedule = synthesis.only("AWS::Events::Rule")
    assert (schedule["ScheduleExpression"], schedule["State"]) == ("rate(1 minute)", "ENABLED")
