"""A template with what training jobs of SageMaker need: a VPC with S3's endpoint, EFS, a bucket, a key and roles."""

import copy

from tests.embedded_aws.emr_template import allow, trust

BUCKET = "sample-models"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/training:1"
ROLE_ACTIONS = [
    *("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface"),
    *("ec2:DeleteNetworkInterfacePermission", "ec2:Describe*", "ecr:*", "logs:*", "cloudwatch:PutMetricData"),
    *("s3:GetObject", "s3:ListBucket", "s3:PutObject", "kms:*"),
]
_ANYTHING = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"AWS": {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:root"}},
            "Action": "kms:*",
            "Resource": "*",
        }
    ],
}


def _group(name):
    return {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": name, "VpcId": {"Ref": "Vpc"}}}


def _ingress(group, source, protocol, **ports):
    values = {"GroupId": group, "SourceSecurityGroupId": source, "IpProtocol": protocol, **ports}
    return {
        "Type": "AWS::EC2::SecurityGroupIngress",
        "Properties": {name: _get_id(value) if name.endswith("Id") else value for name, value in values.items()},
    }


def _get_id(name):
    return {"Fn::GetAtt": [name, "GroupId"]}


def _subnet(block, zone):
    values = {"VpcId": {"Ref": "Vpc"}, "CidrBlock": block, "AvailabilityZone": zone}
    return {"Type": "AWS::EC2::Subnet", "Properties": values}


RESOURCES = {
    "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16", "EnableDnsHostnames": True}},
    "Subnet": _subnet("10.0.0.0/24", "us-east-1a"),
    "OtherSubnet": _subnet("10.0.1.0/24", "us-east-1b"),
    "Table": {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}},
    "Association": {
        "Type": "AWS::EC2::SubnetRouteTableAssociation",
        "Properties": {"RouteTableId": {"Ref": "Table"}, "SubnetId": {"Ref": "Subnet"}},
    },
    "Endpoint": {
        "Type": "AWS::EC2::VPCEndpoint",
        "Properties": {
            "VpcId": {"Ref": "Vpc"},
            "ServiceName": {"Fn::Sub": "com.amazonaws.${AWS::Region}.s3"},
            "VpcEndpointType": "Gateway",
            "RouteTableIds": [{"Ref": "Table"}],
        },
    },
    "Members": _group("members"),
    "Alone": _group("members that do not admit each other"),
    "Files": _group("mount target"),
    "MembersRule": _ingress("Members", "Members", "-1"),
    "FilesRule": _ingress("Files", "Members", "tcp", FromPort=2049, ToPort=2049),
    "AloneFilesRule": _ingress("Files", "Alone", "tcp", FromPort=2049, ToPort=2049),
    "Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": _ANYTHING}},
    "Storage": {"Type": "AWS::EFS::FileSystem", "Properties": {"Encrypted": True}},
    "MountTarget": {
        "Type": "AWS::EFS::MountTarget",
        "Properties": {
            "FileSystemId": {"Ref": "Storage"},
            "SubnetId": {"Ref": "Subnet"},
            "SecurityGroups": [_get_id("Files")],
        },
    },
    "Models": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": BUCKET}},
    "Role": {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": trust("sagemaker.amazonaws.com"),
            "Policies": [allow(ROLE_ACTIONS)],
        },
    },
    "Submitter": {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": trust("ec2.amazonaws.com"),
            "Policies": [
                allow(
                    ["sagemaker:CreateTrainingJob", "sagemaker:AddTags"],
                    {"Fn::Sub": "arn:aws:sagemaker:${AWS::Region}:${AWS::AccountId}:training-job/0123-*"},
                    Condition={"ForAllValues:StringEquals": {"sagemaker:VpcSubnets": [{"Ref": "Subnet"}]}},
                )
                | {"PolicyName": "submit"},
                allow(
                    ["iam:PassRole"],
                    {"Fn::GetAtt": ["Role", "Arn"]},
                    Condition={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
                )
                | {"PolicyName": "pass"},
            ],
        },
    },
    "Topic": {"Type": "AWS::SNS::Topic"},
    "TopicPolicy": {
        "Type": "AWS::SNS::TopicPolicy",
        "Properties": {
            "Topics": [{"Ref": "Topic"}],
            "PolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Service": "events.amazonaws.com"},
                        "Action": "sns:Publish",
                        "Resource": {"Ref": "Topic"},
                    }
                ],
            },
        },
    },
    "Rule": {
        "Type": "AWS::Events::Rule",
        "Properties": {
            "EventPattern": {
                "source": ["aws.sagemaker"],
                "detail-type": ["SageMaker Training Job State Change"],
                "detail": {"TrainingJobStatus": ["Failed"]},
            },
            "Targets": [{"Id": "topic", "Arn": {"Ref": "Topic"}}],
        },
    },
}


def make_template(actions=None, **changes):
    """Return a fresh template; `actions` are those of the execution role, `changes` replace resources, None removes."""
    resources = copy.deepcopy(RESOURCES)
    if actions is not None:
        resources["Role"]["Properties"]["Policies"] = [allow(actions)]
    resources |= changes
    return {"Resources": {name: entry for name, entry in resources.items() if entry is not None}}
