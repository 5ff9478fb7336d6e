"""A template with what training jobs of SageMaker need: a VPC with S3's endpoints, EFS, a bucket, a key and roles."""

from tests.embedded_aws.emr_template import TOPIC_OF_EVENTS, allow, trust

BUCKET = "sample-models"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/training:1"
ROLE_ACTIONS = [
    *("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface"),
    *("ec2:DeleteNetworkInterfacePermission", "ec2:Describe*", "ecr:*", "logs:*", "cloudwatch:PutMetricData"),
    *("s3:GetObject", "s3:ListBucket", "s3:PutObject", "kms:*"),
]
_KEY_POLICY = {
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


def _route(name, subnet, policy=None):
    """Return a route table of a subnet with an endpoint of S3, which may have a policy."""
    endpoint = {
        "VpcId": {"Ref": "Vpc"},
        "ServiceName": {"Fn::Sub": "com.amazonaws.${AWS::Region}.s3"},
        "VpcEndpointType": "Gateway",
        "RouteTableIds": [{"Ref": f"{name}Table"}],
    }
    association = {"RouteTableId": {"Ref": f"{name}Table"}, "SubnetId": {"Ref": subnet}}
    return {
        f"{name}Table": {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}},
        f"{name}Association": {"Type": "AWS::EC2::SubnetRouteTableAssociation", "Properties": association},
        f"{name}Endpoint": {
            "Type": "AWS::EC2::VPCEndpoint",
            "Properties": endpoint | ({"PolicyDocument": policy} if policy else {}),
        },
    }


def _policy(*statements):
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _file_system(name, *statements):
    """Return a file system with the statements of its policy, if it has one, and its mount target."""
    properties = {"Encrypted": True} | ({"FileSystemPolicy": _policy(*statements)} if statements else {})
    target = {"FileSystemId": {"Ref": name}, "SubnetId": {"Ref": "Subnet"}, "SecurityGroups": [_get_id("Files")]}
    return {
        name: {"Type": "AWS::EFS::FileSystem", "Properties": properties},
        f"{name}Target": {"Type": "AWS::EFS::MountTarget", "Properties": target},
    }


_ANYBODY = {"Principal": {"AWS": "*"}, "Effect": "Allow", "Action": "elasticfilesystem:ClientMount"}
_ONLY_TLS = {
    "Principal": {"AWS": "*"},
    "Effect": "Deny",
    "Action": "*",
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}
_NO_DOWNLOAD = {"Effect": "Allow", "Principal": "*", "Action": ["s3:ListBucket", "s3:PutObject"], "Resource": "*"}

TEMPLATE = {
    "Resources": {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16", "EnableDnsHostnames": True}},
        "Subnet": _subnet("10.0.0.0/24", "us-east-1a"),
        "OtherSubnet": _subnet("10.0.1.0/24", "us-east-1b"),
        **_route("", "Subnet"),
        "NarrowSubnet": _subnet("10.0.2.0/24", "us-east-1a"),
        **_route("Narrow", "NarrowSubnet", _policy(_NO_DOWNLOAD)),
        "Members": _group("members"),
        "Alone": _group("members that do not admit each other"),
        "Strangers": _group("members that the mount target does not admit"),
        "Files": _group("mount target"),
        "MembersRule": _ingress("Members", "Members", "-1"),
        "FilesRule": _ingress("Files", "Members", "tcp", FromPort=2049, ToPort=2049),
        "AloneFilesRule": _ingress("Files", "Alone", "tcp", FromPort=2049, ToPort=2049),
        "Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": _KEY_POLICY}},
        **_file_system("Storage"),
        **_file_system("OnlyTls", _ONLY_TLS),
        **_file_system("AnybodyByTls", _ANYBODY, _ONLY_TLS),
        **_file_system("Anybody", _ANYBODY),
        "Lustre": {
            "Type": "AWS::FSx::FileSystem",
            "Properties": {
                "FileSystemType": "LUSTRE",
                "FileSystemTypeVersion": "2.15",
                "StorageCapacity": 1200,
                "StorageType": "SSD",
                "SubnetIds": [{"Ref": "Subnet"}],
                "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
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
        **TOPIC_OF_EVENTS,
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
}
