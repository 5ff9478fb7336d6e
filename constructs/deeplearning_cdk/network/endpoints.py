"""
The endpoints through which nodes reach AWS without the Internet, and what each lets through.

An endpoint's policy grants nothing: roles do. It bounds what anybody behind it can do with credentials that somebody
brought along, which is the way in which a stolen node could carry data out through AWS itself.
"""

from collections.abc import Sequence

from aws_cdk import Aws, Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from deeplearning_cdk.network.security_rules import admit
from deeplearning_cdk.network.subnet_sizes import INTERFACE_ENDPOINTS

_PUBLIC_BUCKETS = (
    "amazonlinux-2-repos-${AWS::Region}",
    "al2023-repos-${AWS::Region}-de612dc2",
    "prod-${AWS::Region}-starport-layer-bucket",
)
"""Packages of Amazon Linux and layers of ECR images, which are read without a role (their user guides)."""


def add_gateways(
    scope: Construct, vpc: ec2.IVpc, subnets: Sequence[ec2.ISubnet], *, isolated: bool
) -> list[IDependable]:
    """
    Make the gateway endpoints of S3 and DynamoDB.

    Args:
        scope: The parent.
        vpc: The VPC.
        subnets: Subnets whose routes get them.
        isolated: Nodes reach nothing else.
    """
    services = {"S3": ec2.GatewayVpcEndpointAwsService.S3, "DynamoDb": ec2.GatewayVpcEndpointAwsService.DYNAMODB}
    policies = {"S3": [_own_principals(), *_public_objects(isolated=isolated)], "DynamoDb": [_own_principals()]}
    endpoints: list[IDependable] = []
    for name, service in services.items():
        endpoint = ec2.GatewayVpcEndpoint(
            scope, f"{name}Endpoint", vpc=vpc, service=service, subnets=[ec2.SubnetSelection(subnets=list(subnets))]
        )
        _bound(endpoint, policies[name])
        endpoints.append(endpoint)
    return endpoints


def add_interfaces(
    scope: Construct, vpc: ec2.IVpc, subnet: ec2.ISubnet, nodes: ec2.ISecurityGroup
) -> list[IDependable]:
    """
    Make the interface endpoints of the other services that nodes call; the nodes alone reach them, by HTTPS.

    Args:
        scope: The parent.
        vpc: The VPC.
        subnet: Where their interfaces are.
        nodes: The nodes' security group.
    """
    group = ec2.SecurityGroup(
        scope, "EndpointsSecurityGroup", vpc=vpc, allow_all_outbound=False, description="Endpoints of the nodes"
    )
    port = ec2.Port.tcp(443)
    admit(group, "FromNodes", group=group, members=nodes, port=port, description="HTTPS from the nodes")
    endpoints: list[IDependable] = [group]
    for name in INTERFACE_ENDPOINTS:
        endpoint = ec2.InterfaceVpcEndpoint(
            scope,
            f"{name.title().replace('_', '')}Endpoint",
            vpc=vpc,
            service=getattr(ec2.InterfaceVpcEndpointAwsService, name),
            subnets=ec2.SubnetSelection(subnets=[subnet]),
            security_groups=[group],
            open=False,
        )
        _bound(endpoint, [_own_principals()])
        endpoints.append(endpoint)
    return endpoints


def _bound(endpoint: ec2.VpcEndpoint, statements: Sequence[iam.PolicyStatement]) -> None:
    resource = endpoint.node.default_child
    assert isinstance(resource, ec2.CfnVPCEndpoint)
    # Minimized whatever the consumer's feature flags say, so that the template stays the same.
    resource.policy_document = iam.PolicyDocument(statements=list(statements), minimize=True)


def _own_principals() -> iam.PolicyStatement:
    """
    Admit whatever roles and users of this account may do.

    Not only the cluster's roles: private DNS names lead everything in the VPC to these endpoints, also what a user's
    VPC holds beside the cluster. Nor only this account's resources: data may be in buckets of other accounts, and
    the nodes' roles name the queues, tables and objects that they may touch.
    """
    return iam.PolicyStatement(
        principals=[iam.StarPrincipal()],
        actions=["*"],
        resources=["*"],
        conditions={"StringEquals": {"aws:PrincipalAccount": Aws.ACCOUNT_ID}},
    )


def _public_objects(*, isolated: bool) -> list[iam.PolicyStatement]:
    """
    Admit what goes to S3 without credentials of this account.

    The stack's wait is signalled by a URL that CloudFormation has signed. Packages, container layers, open data and
    presigned URLs are read without credentials or with somebody else's: nodes with a route to the Internet keep
    reading them, since the gateway takes all of S3's traffic in the region, but write nowhere. Isolated nodes, which
    are not to reach the Internet, read packages of Amazon Linux and layers of ECR alone.
    """
    read = [Fn.sub(f"arn:${{AWS::Partition}}:s3:::{bucket}/*") for bucket in _PUBLIC_BUCKETS] if isolated else ["*"]
    signal = Fn.sub("arn:${AWS::Partition}:s3:::cloudformation-waitcondition-${AWS::Region}/*")
    everyone = [iam.StarPrincipal()]
    return [
        iam.PolicyStatement(
            principals=everyone,
            actions=["s3:GetObject"] if isolated else ["s3:GetObject", "s3:GetObjectVersion", "s3:ListBucket"],
            resources=read,
        ),
        iam.PolicyStatement(principals=everyone, actions=["s3:PutObject"], resources=[signal]),
    ]
