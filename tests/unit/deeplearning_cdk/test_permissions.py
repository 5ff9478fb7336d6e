"""Every right that a cluster's roles have, exactly."""

import json
import re
from typing import Any

import pytest
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import DataSource, JobEnvironment, LustreFileSystem, NodeImage, TrainingCluster
from deeplearning_contract.names import NodeRole

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
        # To end the cluster from the master; describing groups takes no resource.
        _allow("autoscaling:DescribeAutoScalingGroups", "*"),
        _allow(
            ["autoscaling:SetDesiredCapacity", "autoscaling:SetInstanceHealth"],
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
    stars = {
        re.sub(r"[0-9A-F]{8}$", "", name): statement["Action"]
        for name, role in synthesis.of_type("AWS::IAM::Role").items()
        for policy in role["Properties"]["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Resource"] == "*" or "*" in statement["Action"]
    }
    # IAM knows no resource for describing groups and their activities.
    assert stars == {
        "ClusterCapacityAdjusterRole": [
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeScalingActivities",
        ],
        "ClusterNodesMasterRole": "autoscaling:DescribeAutoScalingGroups",
    }


# --- Data and environment -----------------------------------------------------------------------------

DATA = (
    DataSource("train", "team-data", "coco/train.tar.gz"),
    DataSource("images", "team-data", "images/", target="local"),
    DataSource("all", "other-data", target="stream"),
)


def _s3(path: str) -> dict[str, Any]:
    return {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, f":s3:::{path}"]]}


@pytest.mark.parametrize("role", ["MasterRole", "WorkerRole"])
def test_nodes_read_exactly_the_data_that_was_named(synthesize: Any, role: str) -> None:
    statements = [entry for entry in synthesize(data=DATA).statements(role) if "s3:" in json.dumps(entry["Action"])]
    (read,) = (entry for entry in statements if entry["Action"] == "s3:GetObject")
    assert [resource for resource in read["Resource"] if ASSETS not in json.dumps(resource)] == [
        _s3("other-data/*"),
        _s3("team-data/coco/train.tar.gz"),
        _s3("team-data/coco/train.tar.gz.sha256"),
        _s3("team-data/images/*"),
    ]
    listed = [entry for entry in statements if entry != read]
    assert {entry["Action"] for entry in listed} == {"s3:ListBucket"}
    assert sorted((entry["Resource"]["Fn::Join"][1][2], json.dumps(entry.get("Condition"))) for entry in listed) == [
        (":s3:::other-data", "null"),
        (":s3:::team-data", '{"StringLike": {"s3:prefix": "coco/train.tar.gz*"}}'),
        (":s3:::team-data", '{"StringLike": {"s3:prefix": "images/*"}}'),
    ]


def test_nodes_may_decrypt_with_the_key_of_a_bucket_that_is_a_construct(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    bucket = s3.Bucket(stack, "Data", encryption=s3.BucketEncryption.KMS)
    TrainingCluster(stack, "Cluster", data=[DataSource("train", bucket, "train/")])
    synthesis = read_stack(stack)
    statements = [
        statement
        for policy in synthesis.of_type("AWS::IAM::Policy").values()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert statements == [_allow("kms:Decrypt", _arn(synthesis, "AWS::KMS::Key"))] * 2
    # A node that starts before it may decrypt would fail for good.
    for node_role in NodeRole:
        assert set(synthesis.of_type("AWS::IAM::Policy")) <= synthesis.before(synthesis.group_id(node_role))


def test_nodes_read_nothing_that_lustre_reads_for_them(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    lustre = LustreFileSystem(stack, "Lustre")
    TrainingCluster(stack, "Cluster", lustre=lustre, data=[DataSource("train", "team-data", "train/", "lustre")])
    synthesis = read_stack(stack)
    assert "team-data" in json.dumps(synthesis.of_type("AWS::FSx::DataRepositoryAssociation"))
    assert "team-data" not in json.dumps(synthesis.of_type("AWS::IAM::Role"))


@pytest.mark.parametrize("role", ["MasterRole", "WorkerRole"])
def test_every_node_reads_the_file_of_the_environment(synthesize: Any, tmp_path: Any, role: str) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.9.1\n")
    environment = JobEnvironment.from_requirements(str(tmp_path / "requirements.txt"))
    assert sorted(_read_assets(synthesize(environment=environment).statements(role)[-1])) == ["txt", "zip"]


@pytest.mark.defect("D57")
@pytest.mark.parametrize("isolated", [False, True])
def test_data_comes_through_the_s3_endpoint_which_shuts_no_bucket_out(synthesize: Any, *, isolated: bool) -> None:
    endpoints = synthesize(isolated=isolated, worker_instance_type="m5.large", data=DATA).of_type(
        "AWS::EC2::VPCEndpoint"
    )
    (gateway,) = (entry["Properties"] for name, entry in endpoints.items() if "S3Endpoint" in name)
    assert gateway["VpcEndpointType"] == "Gateway"
    # Without a policy of its own it admits what the roles may do: assets, signals and the data.
    assert "PolicyDocument" not in gateway


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
