# ruff: noqa: INP001 - an app is a script, not a package
"""
CDK app of a team that trains in its own VPC on its own data.

    pip install ../..                # a checkout in which `make setup` has run
    npx cdk deploy --app "python app.py"
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deeplearning_cdk import Network, TrainingCluster, Workers


class TrainingStack(cdk.Stack):
    """VPC, bucket with data, and cluster that may read it."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        vpc = ec2.Vpc(self, "Vpc", max_azs=1, nat_gateways=1, restrict_default_security_group=False)
        vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        data = s3.Bucket(self, "Data", block_public_access=s3.BlockPublicAccess.BLOCK_ALL, enforce_ssl=True)
        cluster = TrainingCluster(
            self,
            "Cluster",
            workers=Workers(instance_type="g5.12xlarge", min_capacity=2, desired_capacity=4, max_capacity=8),
            network=Network(vpc=vpc),
        )
        data.grant_read(cluster)
        cluster.connections.allow_from(ec2.Peer.ipv4(vpc.vpc_cidr_block), ec2.Port.tcp(6006), "TensorBoard")
        cdk.CfnOutput(self, "LogIn", value=cluster.session_command)


app = cdk.App()
TrainingStack(app, "team-training")
app.synth()
