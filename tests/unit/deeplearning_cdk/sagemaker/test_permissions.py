"""Permissions of training jobs by their role, and of people who submit them."""

import json
import re
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import DataSource, Network, SageMakerTraining, Storage
from tests.unit.deeplearning_cdk.conftest import render
from tests.unit.deeplearning_cdk.sagemaker.conftest import read_training

ROOT = Path(__file__).parents[4]
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/team/train:1"
PLACE = "<AWS::Region>:<AWS::AccountId>"
EC2 = f"arn:<AWS::Partition>:ec2:{PLACE}"
LOGS = f"arn:<AWS::Partition>:logs:{PLACE}:log-group:/aws/sagemaker/TrainingJobs"
ASSETS = "arn:<AWS::Partition>:s3:::<cdk-hnb659fds-assets-<AWS::AccountId>-<AWS::Region>>"


def _list(value):
    return value if isinstance(value, list) else [value]


def _shorten(text):
    text = re.sub(r"\$\{([\w:.]+)\}", r"<\1>", text)
    return re.sub(r"(Training\w+?)[0-9A-F]{8}\b", r"\1", text)


def _show(statements):
    """Return each action with its resources and conditions; those of one action in several statements are joined."""
    found: dict[str, tuple[list[str], Any]] = {}
    for each in statements:
        resources = [_shorten(render(resource)) for resource in _list(each["Resource"])]
        condition = json.loads(_shorten(json.dumps(each.get("Condition", {}))))
        for action in _list(each["Action"]):
            known, _ = found.get(action, ([], {}))
            found[action] = (sorted([*known, *resources]), condition)
    return found


def _role(synthesis):
    """Return the rights of the role but for those that outlive the network."""
    return _show([each for name, own in _policies(synthesis).items() if "Removal" not in name for each in own])


def _removals(synthesis):
    """Return the statements that outlive the network."""
    (statements,) = (own for name, own in _policies(synthesis).items() if "Removal" in name)
    return statements


def _policies(synthesis):
    role = synthesis.part("AWS::IAM::Role", "TrainingRole")["Properties"]
    assert not {"Policies", "ManagedPolicyArns"} & set(role)
    return {
        name: each["Properties"]["PolicyDocument"]["Statement"]
        for name, each in synthesis.of_type("AWS::IAM::ManagedPolicy").items()
        if "TrainingRole" in str(each["Properties"].get("Roles"))
    }


def test_role_is_for_training_jobs_of_this_account_alone(make):
    role = make().part("AWS::IAM::Role", "TrainingRole")["Properties"]
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_role_has_what_sagemaker_requires_and_nothing_else(make):
    """SageMaker developer guide, "CreateTrainingJob API: Execution Role Permissions", with a VPC and keys."""
    synthesis = make(image=IMAGE, instance_type="m5.xlarge")
    rights, prefix = _role(synthesis), read_training(synthesis).name_prefix
    removals = _show(_removals(synthesis))
    subnet = f"{EC2}:subnet/<TrainingNetworkVpcPrivateSubnet1Subnet>"
    interfaces, key = [f"{EC2}:network-interface/*"], ["<TrainingEncryptionKey.Arn>"]
    in_subnet = rights["ec2:CreateNetworkInterfacePermission"][1]
    assert render(in_subnet["ArnEquals"]["ec2:Subnet"]) == subnet
    s3_here = {"Fn::Join": ["", ["s3.", {"Ref": "AWS::Region"}, ".amazonaws.com"]]}
    through_s3 = {"StringEquals": {"kms:ViaService": s3_here}}
    _, in_vpc = removals["ec2:DeleteNetworkInterface"]
    assert render(in_vpc["ArnEquals"]["ec2:Vpc"]) == f"{EC2}:vpc/<TrainingNetworkVpc>"
    assert removals == {
        f"ec2:{name}": (interfaces, in_vpc) for name in ("DeleteNetworkInterface", "DeleteNetworkInterfacePermission")
    }
    describes = ("DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs")
    pulls = ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")
    namespace = {"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/TrainingJobs"}}
    assert rights == {
        "s3:GetObject": ([f"{ASSETS}/deeplearning-jobs/Stack-8085bf09/*"], {}),
        "s3:ListBucket": ([ASSETS], {"StringLike": {"s3:prefix": "deeplearning-jobs/Stack-8085bf09/agents/*"}}),
        "s3:PutObject": (["<TrainingModelBucket.Arn>/models/*"], {}),
        "ecr:GetAuthorizationToken": (["*"], {}),
        **{
            f"ecr:{name}": (["arn:<AWS::Partition>:ecr:us-east-1:111122223333:repository/team/train"], {})
            for name in pulls
        },
        "ec2:CreateNetworkInterface": (
            sorted([*interfaces, subnet, f"{EC2}:security-group/<TrainingNetworkNodesSecurityGroup.GroupId>"]),
            {},
        ),
        "ec2:CreateNetworkInterfacePermission": (interfaces, in_subnet),
        **{f"ec2:Describe{name}": (["*"], {}) for name in describes},
        **{f"kms:{name}": (key, through_s3) for name in ("Decrypt", "GenerateDataKey")},
        "kms:Encrypt": (key, {}),
        "kms:CreateGrant": (key, {"Bool": {"kms:GrantIsForAWSResource": "true"}}),
        **{f"logs:{name}": ([f"{LOGS}:*"], {}) for name in ("CreateLogGroup", "DescribeLogStreams")},
        **{f"logs:{name}": ([f"{LOGS}:log-stream:{prefix}*"], {}) for name in ("CreateLogStream", "PutLogEvents")},
        "cloudwatch:PutMetricData": (["*"], namespace),
    }


def test_role_removes_interfaces_until_the_subnet_and_the_group_are_deleted(make):
    """CloudFormation deletes what depends on a resource before it; SageMaker removes interfaces as the role."""
    synthesis = make(image=IMAGE)
    (policy,) = (name for name in synthesis.of_type("AWS::IAM::ManagedPolicy") if "TrainingRemoval" in name)
    (subnet,) = (name for name in synthesis.of_type("AWS::EC2::Subnet") if "PrivateSubnet1" in name)
    (group,) = (name for name in synthesis.of_type("AWS::EC2::SecurityGroup") if "NodesSecurityGroup" in name)
    (role,) = (name for name in synthesis.of_type("AWS::IAM::Role") if name.startswith("TrainingRole"))
    for name in (subnet, group):
        assert {policy, role} <= synthesis.before(name)


def test_role_removes_interfaces_of_its_subnet_alone_in_a_network_of_the_users(make_stack, read_stack):
    stack = make_stack()
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"], private_subnet_ids=["subnet-1"]
    )
    SageMakerTraining(stack, "Training", image=IMAGE, network=Network(vpc=vpc))
    synthesis = read_stack(stack)
    (statement,) = _removals(synthesis)
    assert render(statement["Condition"]["ArnEquals"]["ec2:Subnet"]).endswith(":subnet/subnet-1")
    (policy,) = (name for name in synthesis.of_type("AWS::IAM::ManagedPolicy") if "TrainingRemoval" in name)
    (group,) = (name for name in synthesis.of_type("AWS::EC2::SecurityGroup") if "NodesSecurityGroup" in name)
    assert policy in synthesis.before(group)


def test_role_pulls_the_built_image_alone_and_grants_no_use_of_the_key_where_instances_have_no_volume(make):
    """SageMaker API reference, ResourceConfig: a type with disks of its own is refused with VolumeKmsKeyId."""
    rights = _role(make())
    (repository,) = rights["ecr:BatchGetImage"][0]
    assert repository.endswith(":repository/<cdk-hnb659fds-container-assets-<AWS::AccountId>-<AWS::Region>>")
    assert "kms:CreateGrant" not in rights


def test_role_reads_the_data_with_the_keys_of_its_buckets_and_gets_the_grants_of_users(make_stack, read_stack):
    stack = make_stack()
    mine = s3.Bucket(stack, "Mine", encryption_key=kms.Key(stack, "MineKey"))
    data = [DataSource("train", "team-data", "train/"), DataSource("own", mine, target="stream")]
    training = SageMakerTraining(stack, "Training", image=IMAGE, storage=Storage(data=data))
    iam.Grant.add_to_principal(grantee=training, actions=["sqs:SendMessage"], resource_arns=["arn:aws:sqs:a:1:b"])
    synthesis = read_stack(stack)
    rights = str(synthesis.policies("TrainingRole"))
    assert "sqs:SendMessage" in rights
    assert "team-data/train/*" in rights
    assert "MineKey" in rights


def test_submitters_start_jobs_with_the_names_the_network_the_key_and_the_role_of_the_stack_alone(
    make_stack, read_stack
):
    """SageMaker developer guide, "Restrict Training to a Specific VPC": the keys must be present too."""
    stack = make_stack()
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"], private_subnet_ids=["subnet-1"]
    )
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1")
    training = SageMakerTraining(stack, "Training", image=IMAGE, network=Network(vpc=vpc, security_groups=[group]))
    training.grant_submit(iam.User(stack, "User"))
    synthesis = read_stack(stack)
    (policy,) = (
        each for each in synthesis.of_type("AWS::IAM::ManagedPolicy").values() if "Users" in each["Properties"]
    )
    rights = _show(policy["Properties"]["PolicyDocument"]["Statement"])
    prefix = read_training(synthesis).name_prefix
    jobs = [f"arn:<AWS::Partition>:sagemaker:{PLACE}:training-job/{prefix}*"]
    nodes = {"Fn::GetAtt": ["TrainingNetworkNodesSecurityGroup", "GroupId"]}
    documents = f"arn:<AWS::Partition>:ssm:{PLACE}:parameter/deeplearning"
    tag = {"aws:RequestTag/deeplearning:cluster": "Stack-8085bf09"}
    keys = {"aws:TagKeys": ["deeplearning:cluster", "deeplearning:job"]}
    assert rights == {
        "sagemaker:CreateTrainingJob": (
            jobs,
            {
                "ForAllValues:StringEquals": {
                    "sagemaker:InstanceTypes": ["ml.g5.12xlarge"],
                    "sagemaker:VpcSubnets": ["subnet-1"],
                    "sagemaker:VpcSecurityGroupIds": [nodes, "sg-1"],
                    "sagemaker:FileSystemId": [{"Ref": "TrainingFileSystem"}],
                    "sagemaker:FileSystemType": ["EFS"],
                    "sagemaker:FileSystemAccessMode": ["rw"],
                    "sagemaker:FileSystemDirectoryPath": ["/"],
                    **keys,
                },
                "Null": {f"sagemaker:{key}": "false" for key in ("InstanceTypes", "VpcSubnets", "VpcSecurityGroupIds")},
                "ArnEquals": {"sagemaker:OutputKmsKey": {"Fn::GetAtt": ["TrainingEncryptionKey", "Arn"]}},
                "StringEquals": tag,
                "NumericLessThanEquals": {"sagemaker:MaxRuntimeInSeconds": "86400"},
                "NumericLessThanEqualsIfExists": {"sagemaker:KeepAlivePeriod": "0"},
                "BoolIfExists": {"sagemaker:EnableRemoteDebug": "false"},
            },
        ),
        "sagemaker:AddTags": (jobs, {"StringEquals": tag, "ForAllValues:StringEquals": keys}),
        **{f"sagemaker:{name}": (jobs, {}) for name in ("DescribeTrainingJob", "StopTrainingJob")},
        "sagemaker:ListTrainingJobs": (["*"], {}),
        "iam:PassRole": (["<TrainingRole.Arn>"], {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}),
        "logs:DescribeLogStreams": ([f"{LOGS}:*"], {}),
        "logs:GetLogEvents": ([f"{LOGS}:log-stream:{prefix}*"], {}),
        "ssm:GetParametersByPath": ([documents], {}),
        "s3:GetObject": ([f"{ASSETS}/{read_training(synthesis).agent.key}"], {}),
        "s3:PutObject": ([f"{ASSETS}/deeplearning-jobs/Stack-8085bf09/*"], {}),
    }


def test_a_key_of_the_user_encrypts_everything_and_its_owner_is_warned(make_stack, read_stack):
    stack: cdk.Stack = make_stack()
    arn = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    SageMakerTraining(stack, "Training", image=IMAGE, encryption_key=kms.Key.from_key_arn(stack, "Mine", arn))
    synthesis = read_stack(stack)
    assert synthesis.of_type("AWS::KMS::Key") == {}
    assert read_training(synthesis).key_arn == arn
    assert any("events.amazonaws.com" in each and "AutoScaling" not in each for each in synthesis.warnings)
