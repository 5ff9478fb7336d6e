"""A template with a cluster of EKS as small as can be: a VPC with two zones, roles, add-ons, a group, its access."""

import copy

from tests.embedded_aws import emr_template
from tests.embedded_aws.emr_template import allow, trust

NAME = "sample-cluster"
NAMESPACE, ACCOUNT = "jobs", "job"
NODE_ACTIONS = [
    *("ec2:DescribeInstanceTypes", "ec2:DescribeInstances", "ecr:GetAuthorizationToken", "ecr:BatchGetImage"),
    *("ecr:GetDownloadUrlForLayer", "eks:DescribeCluster", "eks-auth:AssumeRoleForPodIdentity"),
]
NETWORK_ACTIONS = [
    *("ec2:DescribeInstanceTypes", "ec2:DescribeInstances", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"),
    *("ec2:DescribeTags", "ec2:CreateNetworkInterface", "ec2:CreateTags", "ec2:AttachNetworkInterface"),
    *("ec2:ModifyNetworkInterfaceAttribute", "ec2:AssignPrivateIpAddresses", "ec2:DetachNetworkInterface"),
    *("ec2:UnassignPrivateIpAddresses", "ec2:DeleteNetworkInterface"),
]
CONTROL_PLANE_ACTIONS = [
    *("ec2:DescribeAvailabilityZones", "ec2:DescribeDhcpOptions", "ec2:DescribeInstanceTopology"),
    *("ec2:DescribeInstances", "ec2:DescribeNetworkInterfaces", "ec2:DescribeVpcs", "ec2:CreateTags"),
]
_NETWORK = ("Vpc", "Subnet", "Gateway", "Attachment", "Table", "Association", "Route")
SUBMITTER = {"Fn::GetAtt": ["Submitter", "Arn"]}


def make_role(trusted, actions):
    """Return a role that trusts a service, or has a trust policy, and may do actions."""
    policy = trust(trusted) if isinstance(trusted, str) else trusted
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {"AssumeRolePolicyDocument": policy, **({"Policies": [allow(actions)]} if actions else {})},
    }


def trust_pods(**conditions):
    """Return a trust policy for EKS Pod Identity."""
    policy = trust("pods.eks.amazonaws.com")
    policy["Statement"][0] |= {"Action": ["sts:AssumeRole", "sts:TagSession"]}
    if conditions:
        policy["Statement"][0]["Condition"] = conditions
    return policy


def make_addon(name, *needs, **more):
    """Return an add-on that is created after others."""
    properties = {"AddonName": name, "ClusterName": {"Ref": "Cluster"}, **more}
    return {"Type": "AWS::EKS::Addon", "Properties": properties, **({"DependsOn": list(needs)} if needs else {})}


def make_entry(principal, policy="AmazonEKSEditPolicy", *namespaces):
    """Return an access entry with a policy, in namespaces or in the whole cluster."""
    scope = {"Type": "namespace", "Namespaces": list(namespaces)} if namespaces else {"Type": "cluster"}
    arn = {"Fn::Sub": f"arn:${{AWS::Partition}}:eks::aws:cluster-access-policy/{policy}"}
    return {
        "Type": "AWS::EKS::AccessEntry",
        "Properties": {
            "ClusterName": {"Ref": "Cluster"},
            "PrincipalArn": principal,
            "AccessPolicies": [{"PolicyArn": arn, "AccessScope": scope}],
        },
    }


def make_association(role="JobRole", **more):
    """Return the association of the service account of jobs."""
    properties = {"ClusterName": {"Ref": "Cluster"}, "Namespace": NAMESPACE, "ServiceAccount": ACCOUNT}
    properties |= {"RoleArn": {"Fn::GetAtt": [role, "Arn"]}} | more
    return {"Type": "AWS::EKS::PodIdentityAssociation", "Properties": properties}


def _own(**more):
    conditions = {
        "StringEquals": {
            "aws:SourceAccount": {"Ref": "AWS::AccountId"},
            "aws:RequestTag/kubernetes-namespace": NAMESPACE,
            "aws:RequestTag/kubernetes-service-account": ACCOUNT,
        },
        "ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": ["Cluster", "Arn"]}},
    }
    return make_role(trust_pods(**conditions), ["s3:GetObject"]) | more


RESOURCES = {
    **{name: emr_template.RESOURCES[name] for name in _NETWORK},
    "OtherSubnet": {
        "Type": "AWS::EC2::Subnet",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.1.0/28", "AvailabilityZone": "us-east-1b"},
    },
    "ClusterRole": make_role("eks.amazonaws.com", CONTROL_PLANE_ACTIONS),
    "NodeRole": make_role("ec2.amazonaws.com", NODE_ACTIONS),
    "NetworkRole": make_role(trust_pods(), NETWORK_ACTIONS),
    "JobRole": _own(),
    "Submitter": make_role("ec2.amazonaws.com", ["eks:ListClusters"]),
    "Cluster": {
        "Type": "AWS::EKS::Cluster",
        "DependsOn": ["Route", "Association"],
        "Properties": {
            "Name": NAME,
            "Version": "1.35",
            "RoleArn": {"Fn::GetAtt": ["ClusterRole", "Arn"]},
            "ResourcesVpcConfig": {
                "SubnetIds": [{"Ref": "Subnet"}, {"Ref": "OtherSubnet"}],
                "EndpointPrivateAccess": True,
                "EndpointPublicAccess": False,
            },
            "AccessConfig": {"AuthenticationMode": "API", "BootstrapClusterCreatorAdminPermissions": False},
            "BootstrapSelfManagedAddons": False,
            "Tags": [{"Key": "team", "Value": "learning"}],
        },
    },
    "Network": make_addon(
        "vpc-cni",
        PodIdentityAssociations=[{"ServiceAccount": "aws-node", "RoleArn": {"Fn::GetAtt": ["NetworkRole", "Arn"]}}],
    ),
    "Agent": make_addon("eks-pod-identity-agent"),
    "Dns": make_addon("coredns", "Nodes"),
    "Template": {
        "Type": "AWS::EC2::LaunchTemplate",
        "Properties": {
            "LaunchTemplateData": {
                "NetworkInterfaces": [
                    {"DeviceIndex": 0, "Groups": [{"Fn::GetAtt": ["Cluster", "ClusterSecurityGroupId"]}]}
                ],
                "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "owner", "Value": "learning"}]}],
            }
        },
    },
    "Nodes": {
        "Type": "AWS::EKS::Nodegroup",
        "DependsOn": ["Network", "Agent"],
        "Properties": {
            "ClusterName": {"Ref": "Cluster"},
            "NodeRole": {"Fn::GetAtt": ["NodeRole", "Arn"]},
            "Subnets": [{"Ref": "Subnet"}],
            "AmiType": "BOTTLEROCKET_x86_64",
            "InstanceTypes": ["c5.2xlarge"],
            "Labels": {"team": "learning"},
            "LaunchTemplate": {
                "Id": {"Ref": "Template"},
                "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
            },
            "ScalingConfig": {"MinSize": 0, "DesiredSize": 2, "MaxSize": 2},
            "Tags": {"team": "learning"},
        },
    },
    "Entry": make_entry(SUBMITTER, "AmazonEKSEditPolicy", NAMESPACE),
    "Jobs": make_association(),
}


def open_api(*networks):
    """Return the properties of a cluster whose API server is reached from networks too."""
    network = RESOURCES["Cluster"]["Properties"]["ResourcesVpcConfig"]
    return {"ResourcesVpcConfig": network | {"EndpointPublicAccess": True, "PublicAccessCidrs": list(networks)}}


def make_template(resources=None, **changes):
    """
    Return a fresh template.

    `changes` change the properties of a resource by its name; `resources` replace resources, None removes one.
    """
    changed = copy.deepcopy(RESOURCES)
    for name, properties in changes.items():
        changed[name]["Properties"] |= properties
    changed |= resources or {}
    outputs = {
        "Arn": {"Value": {"Fn::GetAtt": ["Cluster", "Arn"]}},
        "Authority": {"Value": {"Fn::GetAtt": ["Cluster", "CertificateAuthorityData"]}},
        "Endpoint": {"Value": {"Fn::GetAtt": ["Cluster", "Endpoint"]}},
        "Group": {"Value": {"Fn::GetAtt": ["Cluster", "ClusterSecurityGroupId"]}},
    }
    return {"Resources": {name: entry for name, entry in changed.items() if entry is not None}, "Outputs": outputs}
