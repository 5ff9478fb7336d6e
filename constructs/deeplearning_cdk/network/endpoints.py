"""
Endpoints that connect nodes to AWS without the Internet, their policies, and the warning about a missing one.

An endpoint's policy grants nothing; roles do. It limits the use of credentials from other accounts, so that a
compromised node cannot send data out of the account through AWS itself.
"""

from collections.abc import Sequence

import jsii
from aws_cdk import Annotations, Aspects, Fn, IAspect, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct, IDependable

from deeplearning_cdk.network.addresses import INTERFACE_ENDPOINTS
from deeplearning_cdk.network.security_rules import allow_ingress
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID

NO_S3_ENDPOINT = "deeplearning_cdk:noGatewayEndpoint"

_PUBLIC_BUCKETS = (
    "amazonlinux-2-repos-${AWS::Region}",
    "al2023-repos-${AWS::Region}-de612dc2",
    "prod-${AWS::Region}-starport-layer-bucket",
)
"""Buckets of Amazon Linux packages and of layers of ECR images, which are read without a role (their user guides)."""


_EMR_BUCKETS = ("aws157-logs-prod", "aws157-logs-prod-${AWS::Region}", "prod.${AWS::Region}.appinfo.src")
"""EMR's own buckets: of logs, whose name in us-east-1 has no region, and of what YARN's and Spark's pages show."""
_EMR_ACTIONS = ("s3:Abort*", "s3:Create*", "s3:Get*", "s3:List*", "s3:Put*")


def add_gateways(
    scope: Construct, vpc: ec2.IVpc, subnets: Sequence[ec2.ISubnet], *, isolated: bool, is_on_emr: bool
) -> list[IDependable]:
    """Add the gateway endpoints of S3 and DynamoDB to the routes of subnets."""
    services = {"S3": ec2.GatewayVpcEndpointAwsService.S3, "DynamoDb": ec2.GatewayVpcEndpointAwsService.DYNAMODB}
    policies = {"S3": [_own_principals(), *_public_objects(isolated=isolated)], "DynamoDb": [_own_principals()]}
    if is_on_emr:
        policies["S3"].append(_emr_objects())
    endpoints: list[IDependable] = []
    for name, service in services.items():
        endpoint = ec2.GatewayVpcEndpoint(
            scope, f"{name}Endpoint", vpc=vpc, service=service, subnets=[ec2.SubnetSelection(subnets=list(subnets))]
        )
        _set_endpoint_policy(endpoint, policies[name])
        endpoints.append(endpoint)
    return endpoints


def add_interfaces(
    scope: Construct, vpc: ec2.IVpc, subnet: ec2.ISubnet, nodes: ec2.ISecurityGroup
) -> list[IDependable]:
    """Add the interface endpoints of the other services that nodes call; only the nodes reach them, over HTTPS."""
    group = ec2.SecurityGroup(
        scope, "EndpointsSecurityGroup", vpc=vpc, allow_all_outbound=False, description="Endpoints of the nodes"
    )
    port = ec2.Port.tcp(443)
    allow_ingress(group, "FromNodes", group=group, members=nodes, port=port, description="HTTPS from the nodes")
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
        _set_endpoint_policy(endpoint, [_own_principals()])
        endpoints.append(endpoint)
    return endpoints


def warn_of_missing_gateway(scope: Construct, vpc: ec2.IVpc) -> None:
    """
    Warn if the app defines no gateway endpoint of S3 in an existing VPC: traffic then uses a NAT gateway or has no
    route.

    The check runs when the app is synthesized, since the endpoint may be added after the cluster.
    """
    # The aspect is on a construct without children, so that it visits nothing else.
    Aspects.of(Construct(scope, "S3Route")).add(_GatewayAspect(scope, vpc))


def _set_endpoint_policy(endpoint: ec2.VpcEndpoint, statements: Sequence[iam.PolicyStatement]) -> None:
    resource = endpoint.node.default_child
    assert isinstance(resource, ec2.CfnVPCEndpoint)
    # Minimized with any feature flags of the consumer, so that the template stays the same.
    resource.policy_document = iam.PolicyDocument(statements=list(statements), minimize=True)


def _own_principals() -> iam.PolicyStatement:
    """
    Allow all calls by roles and users of this account.

    Other roles than the cluster's are included, because private DNS names route all calls in the VPC to these
    endpoints, also those of other resources in an existing VPC. Resources of other accounts are included, because data
    may be in their buckets; the nodes' roles limit the queues, tables and objects that nodes may use.
    """
    return iam.PolicyStatement(
        principals=[iam.StarPrincipal()],
        actions=["*"],
        resources=["*"],
        conditions={"StringEquals": {"aws:PrincipalAccount": ACCOUNT_ID}},
    )


def _public_objects(*, isolated: bool) -> list[iam.PolicyStatement]:
    """
    Allow calls to S3 without credentials of this account.

    The wait condition is signalled through a URL that CloudFormation has signed. Packages, container layers, open data
    and presigned URLs are read without credentials or with those of others: nodes with a route to the Internet can
    still read them, since the gateway takes all of S3's traffic in the region, but cannot write. Isolated nodes, which
    must not reach the Internet, read only packages of Amazon Linux and layers of ECR.
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


def _emr_objects() -> iam.PolicyStatement:
    """
    Allow EMR's own calls from the nodes, which it signs with credentials of an account of its own.

    Without them AWS's support has no logs of the cluster, and the console shows no history of applications. Buckets and
    actions are those of the EMR management guide, "Sample policies for private subnets that access Amazon S3".
    """
    buckets = [Fn.sub(f"arn:${{AWS::Partition}}:s3:::{bucket}/*") for bucket in _EMR_BUCKETS]
    return iam.PolicyStatement(principals=[iam.StarPrincipal()], actions=list(_EMR_ACTIONS), resources=buckets)


@jsii.implements(IAspect)
class _GatewayAspect:
    def __init__(self, scope: Construct, vpc: ec2.IVpc) -> None:
        self._scope, self._vpc = scope, vpc

    def visit(self, node: IConstruct) -> None:
        """Warn once; `node` is the construct that the aspect was added to."""
        del node
        if not _has_gateway(self._scope, self._vpc):
            Annotations.of(self._scope).add_warning_v2(
                NO_S3_ENDPOINT,
                "this app shows no gateway endpoint of S3 in the vpc: data, packages and the agent then go through a "
                "NAT gateway, which charges for each gigabyte, or have no route; an endpoint costs nothing: "
                'vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3); acknowledge this '
                "warning if the VPC has one",
            )


def _has_gateway(scope: Construct, vpc: ec2.IVpc) -> bool:
    """Return whether an endpoint is in the VPC, beside it, or in the stack of either."""
    places = [vpc, vpc.node.scope, Stack.of(vpc), Stack.of(scope)]
    found = [child for place in places if place is not None for child in place.node.children]
    return any(_is_gateway(child) for child in found)


def _is_gateway(construct: IConstruct) -> bool:
    resource = construct.node.default_child if isinstance(construct, ec2.GatewayVpcEndpoint) else construct
    if not isinstance(resource, ec2.CfnVPCEndpoint):
        return False
    return ".s3" in str(Stack.of(resource).resolve(resource.service_name))
