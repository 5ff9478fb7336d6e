"""A template with an EMR cluster as small as can be: a VPC, roles, a log bucket, one primary and core nodes."""

import copy

BUCKET = "sample-emr-logs"
_TRUST = {"Version": "2012-10-17", "Statement": []}


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


def make_step(name, *command, action="CONTINUE"):
    """Return a step of the API, and of a template."""
    runner = {"Jar": "command-runner.jar", "Args": list(command)}
    return {"Name": name, "ActionOnFailure": action, "HadoopJarStep": runner}
