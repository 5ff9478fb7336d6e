"""Warns of a user's VPC that leads S3's traffic through a NAT gateway, or nowhere."""

import jsii
from aws_cdk import Annotations, Aspects, IAspect, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IConstruct

NO_S3_ENDPOINT = "deeplearning_cdk:noGatewayEndpoint"


def warn_of_missing_gateway(scope: Construct, vpc: ec2.IVpc) -> None:
    """
    Warn when a user's VPC has no gateway endpoint of S3, as far as the app shows.

    It is judged when the app is synthesized, since the endpoint may be made after the cluster.

    Args:
        scope: Where the warning is attached.
        vpc: The user's VPC.
    """
    # Of a place without children, so that nothing else is visited.
    Aspects.of(Construct(scope, "S3Route")).add(_GatewayAspect(scope, vpc))


@jsii.implements(IAspect)
class _GatewayAspect:
    def __init__(self, scope: Construct, vpc: ec2.IVpc) -> None:
        self._scope, self._vpc = scope, vpc

    def visit(self, node: IConstruct) -> None:
        """Warn once; `node` is the place that the aspect was added to."""
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
    """Return whether an endpoint stands in the VPC, beside it, or in the stack of either."""
    places = [vpc, vpc.node.scope, Stack.of(vpc), Stack.of(scope)]
    found = [child for place in places if place is not None for child in place.node.children]
    return any(_is_gateway(child) for child in found)


def _is_gateway(construct: IConstruct) -> bool:
    resource = construct.node.default_child if isinstance(construct, ec2.GatewayVpcEndpoint) else construct
    if not isinstance(resource, ec2.CfnVPCEndpoint):
        return False
    return ".s3" in str(Stack.of(resource).resolve(resource.service_name))
