"""A template with an EMR cluster as small as can be: a VPC, roles, a log bucket, one primary and core nodes."""

import copy

BUCKET = "sample-emr-logs"
IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"
MARK = {"Key": "for-use-with-amazon-emr-managed-policies", "Value": "true"}
_TRUST = {"Version": "2012-10-17", "Statement": []}
TOPIC_OF_EVENTS = {
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
                        "Action": "sns:Publish",
                        "Resource": {"Ref": "Topic"},
                        "Principal": {"Service": "events.amazonaws.com"},
                    }
                ],
            },
        },
    },
}
"""A topic to which EventBridge may publish."""


def trust(service):
    """Return a trust policy for one service."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return {**_TRUST, "Statement": [statement]}


def allow(actions, resource="*", **more):
    """Return an inline policy that allows actions."""
    statement = {"Effect": "Allow", "Action": actions, "Resource": resource, **more}
    return {"PolicyName": "own", "PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]}}


SERVICE_ACTIONS = [
    "ec2:Describe*",
    "ec2:RunInstances",
    "ec2:CreateTags",
    "ec2:TerminateInstances",
    "ec2:AuthorizeSecurityGroupEgress",
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteTags",
    "ec2:ModifyInstanceAttribute",
    "kms:*",
    "iam:PassRole",
]


def _managed_group(name):
    return {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": name, "VpcId": {"Ref": "Vpc"}}}


RESOURCES = {
    "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16", "EnableDnsHostnames": True}},
    "Subnet": {
        "Type": "AWS::EC2::Subnet",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.0.0/24", "AvailabilityZone": "us-east-1a"},
    },
    "Gateway": {"Type": "AWS::EC2::InternetGateway"},
    "Attachment": {
        "Type": "AWS::EC2::VPCGatewayAttachment",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "InternetGatewayId": {"Ref": "Gateway"}},
    },
    "Table": {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}},
    "Association": {
        "Type": "AWS::EC2::SubnetRouteTableAssociation",
        "Properties": {"RouteTableId": {"Ref": "Table"}, "SubnetId": {"Ref": "Subnet"}},
    },
    "Route": {
        "Type": "AWS::EC2::Route",
        "DependsOn": "Attachment",
        "Properties": {
            "RouteTableId": {"Ref": "Table"},
            "DestinationCidrBlock": "0.0.0.0/0",
            "GatewayId": {"Ref": "Gateway"},
        },
    },
    "MasterGroup": _managed_group("primary"),
    "CoreGroup": _managed_group("core"),
    "ServiceRole": {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": trust("elasticmapreduce.amazonaws.com"),
            "Policies": [allow(SERVICE_ACTIONS)],
        },
    },
    "NodeRole": {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": trust("ec2.amazonaws.com"),
            "Policies": [allow(["s3:GetObject", "s3:PutObject", "ssm:*", "ssmmessages:*"])],
        },
    },
    "Profile": {"Type": "AWS::IAM::InstanceProfile", "Properties": {"Roles": [{"Ref": "NodeRole"}]}},
    "Cluster": {
        "Type": "AWS::EMR::Cluster",
        "DependsOn": ["Route", "Association"],
        "Properties": {
            "Name": "sample",
            "ReleaseLabel": "emr-7.14.0",
            "Applications": [{"Name": "Hadoop"}],
            "JobFlowRole": {"Ref": "Profile"},
            "ServiceRole": {"Fn::GetAtt": ["ServiceRole", "Arn"]},
            "LogUri": f"s3://{BUCKET}/logs/",
            "Tags": [{"Key": "team", "Value": "learning"}],
            "Instances": {
                "MasterInstanceGroup": {"InstanceCount": 1, "InstanceType": "m5.xlarge"},
                "CoreInstanceGroup": {"InstanceCount": 2, "InstanceType": "c5.2xlarge"},
                "Ec2SubnetId": {"Ref": "Subnet"},
                "EmrManagedMasterSecurityGroup": {"Ref": "MasterGroup"},
                "EmrManagedSlaveSecurityGroup": {"Ref": "CoreGroup"},
                "KeepJobFlowAliveWhenNoSteps": True,
            },
            "BootstrapActions": [
                {
                    "Name": "setup",
                    "ScriptBootstrapAction": {"Path": f"s3://{BUCKET}/scripts/setup.sh", "Args": ["one", "two words"]},
                }
            ],
        },
    },
}


def make_template(**cluster):
    """Return a fresh template; `cluster` changes the cluster's properties, and `Instances` its instances."""
    resources = copy.deepcopy(RESOURCES)
    properties = resources["Cluster"]["Properties"]
    instances = cluster.pop("Instances", {})
    properties |= cluster
    properties["Instances"] |= instances
    outputs = {
        "Id": {"Value": {"Ref": "Cluster"}},
        "Master": {"Value": {"Fn::GetAtt": ["Cluster", "MasterPublicDNS"]}},
    }
    return {"Resources": resources, "Outputs": outputs}


def make_site():
    """
    Return a template with all that clusters need and no cluster: three kinds of subnets, groups, roles, keys, an image.

    Subnet and groups have the tag that AWS's managed policy for the service role wants, `Unmarked` ones have not.
    """
    resources = copy.deepcopy(RESOURCES)
    del resources["Cluster"]
    subnet, route = resources["Subnet"]["Properties"], resources["Route"]["Properties"]
    root = {"AWS": {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:root"}}
    admit = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": root}
    resources |= {
        "UnmarkedSubnet": {"Type": "AWS::EC2::Subnet", "Properties": subnet | {"CidrBlock": "10.0.1.0/24"}},
        "LonelySubnet": {"Type": "AWS::EC2::Subnet", "Properties": subnet | {"CidrBlock": "10.0.2.0/24"}},
        "PrivateSubnet": {"Type": "AWS::EC2::Subnet", "Properties": subnet | {"CidrBlock": "10.0.3.0/24"}},
        "UnmarkedAssociation": _associate("Table", "UnmarkedSubnet"),
        "PrivateTable": resources["Table"],
        "PrivateAssociation": _associate("PrivateTable", "PrivateSubnet"),
        "Address": {"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}},
        "Nat": {
            "Type": "AWS::EC2::NatGateway",
            "DependsOn": "Attachment",
            "Properties": {
                "AllocationId": {"Fn::GetAtt": ["Address", "AllocationId"]},
                "SubnetId": {"Ref": "Subnet"},
            },
        },
        "PrivateRoute": {
            "Type": "AWS::EC2::Route",
            "Properties": {
                "RouteTableId": {"Ref": "PrivateTable"},
                "DestinationCidrBlock": route["DestinationCidrBlock"],
                "NatGatewayId": {"Ref": "Nat"},
            },
        },
        "UnmarkedGroup": _managed_group("core without a tag"),
        "AccessGroup": _access_group(9443),
        "ClosedGroup": _access_group(9442),
        "Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {"Statement": [admit]}}},
        "Encrypted": _encrypt(ebs=True),
        "DisksEncrypted": _encrypt(ebs=False),
        "ManagedRole": _managed_role(allow("iam:PassRole", {"Fn::GetAtt": ["NodeRole", "Arn"]})),
        "NarrowManagedRole": _managed_role(),
        **TOPIC_OF_EVENTS,
        "Alarms": {
            "Type": "AWS::Events::Rule",
            "Properties": {
                "State": "ENABLED",
                "EventPattern": {
                    "source": ["aws.emr"],
                    "detail-type": ["EMR Cluster State Change", "EMR Step Status Change"],
                    "detail": {"state": ["FAILED", "TERMINATED_WITH_ERRORS"]},
                },
                "Targets": [{"Arn": {"Ref": "Topic"}, "Id": "topic"}],
            },
        },
    }
    for name in ("Vpc", "Subnet", "PrivateSubnet", "MasterGroup", "CoreGroup", "AccessGroup"):
        resources[name] = copy.deepcopy(resources[name])
        resources[name]["Properties"]["Tags"] = [MARK]
    outputs = {"Image": {"Value": {"Ref": "Image"}}, "KeyArn": {"Value": {"Fn::GetAtt": ["Key", "Arn"]}}}
    outputs |= {f"{name}Arn": {"Value": {"Fn::GetAtt": [name, "Arn"]}} for name in ("ServiceRole", "NodeRole")}
    image = {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": IMAGE}
    return {"Resources": resources, "Outputs": outputs, "Parameters": {"Image": image}}


def _managed_role(*policies):
    """Return a service role with AWS's policy, and more."""
    properties = {"AssumeRolePolicyDocument": trust("elasticmapreduce.amazonaws.com"), "Policies": list(policies)}
    properties["ManagedPolicyArns"] = ["arn:aws:iam::aws:policy/service-role/AmazonEMRServicePolicy_v2"]
    return {"Type": "AWS::IAM::Role", "Properties": properties}


def _associate(table, subnet):
    properties = {"RouteTableId": {"Ref": table}, "SubnetId": {"Ref": subnet}}
    return {"Type": "AWS::EC2::SubnetRouteTableAssociation", "Properties": properties}


def _access_group(last_port):
    """Return a group for service access, which opens ports to the primary up to one."""
    source = {"IpProtocol": "tcp", "SourceSecurityGroupId": {"Ref": "MasterGroup"}}
    group = _managed_group("service")
    group["Properties"]["SecurityGroupIngress"] = [{**source, "FromPort": 9440, "ToPort": last_port}]
    return group


def _encrypt(*, ebs):
    """Return a security configuration that encrypts disks with the site's key."""
    disks = {"EncryptionKeyProviderType": "AwsKms", "AwsKmsKey": {"Fn::GetAtt": ["Key", "Arn"]}}
    encryption = {
        "EnableInTransitEncryption": False,
        "EnableAtRestEncryption": True,
        "AtRestEncryptionConfiguration": {"LocalDiskEncryptionConfiguration": {**disks, "EnableEbsEncryption": ebs}},
    }
    content = {"SecurityConfiguration": {"EncryptionConfiguration": encryption}}
    return {"Type": "AWS::EMR::SecurityConfiguration", "Properties": content}


def make_step(name, *command, action="CONTINUE"):
    """Return a step of the API, and of a template."""
    runner = {"Jar": "command-runner.jar", "Args": list(command)}
    return {"Name": name, "ActionOnFailure": action, "HadoopJarStep": runner}
