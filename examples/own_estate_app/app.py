# ruff: noqa: INP001 - an app is a script, not a package
"""
CDK app that uses existing resources: a VPC, a file system, a role, a security group and an image.

    pip install ../..                # a checkout in which `make setup` has run
    npx cdk deploy --all --app "python app.py" -c vpc_id=vpc-0123456789abcdef0

The CDK CLI looks the VPC and the image up at its first run and stores them in cdk.context.json, which belongs in the
repository. The file system, the role and the group are in another stack, on which the training stack depends.
"""

import os

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk import Master, Network, NodeImage, Software, Storage, TrainingCluster, Workers

CANONICAL = "099720109477"


class EstateStack(cdk.Stack):
    """Resources of other teams: a file system in the VPC, a role of masters, and a group of database clients."""

    def __init__(self, scope: Construct, construct_id: str, *, vpc_id: str, env: cdk.Environment) -> None:
        super().__init__(scope, construct_id, env=env)
        self.vpc = ec2.Vpc.from_lookup(self, "Vpc", vpc_id=vpc_id)
        # Nodes with Ubuntu mount by plain NFS, which only security groups protect.
        self.file_system = efs.FileSystem(self, "Files", vpc=self.vpc, encrypted=True, allow_anonymous_access=True)
        self.role = iam.Role(self, "Master", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        self.clients = ec2.SecurityGroup(self, "DatabaseClients", vpc=self.vpc, description="Clients of the database")


class TrainingStack(cdk.Stack):
    """Cluster that uses the existing resources."""

    def __init__(self, scope: Construct, construct_id: str, *, estate: EstateStack, env: cdk.Environment) -> None:
        super().__init__(scope, construct_id, env=env)
        ubuntu = ec2.MachineImage.lookup(
            name="ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*", owners=[CANONICAL]
        )
        cluster = TrainingCluster(
            self,
            "Cluster",
            workers=Workers(instance_type="c7i.4xlarge", desired_capacity=2),
            master=Master(role=estate.role),
            network=Network(vpc=estate.vpc, security_groups=[estate.clients]),
            software=Software(image=NodeImage.from_machine_image(ubuntu, like=NodeImage.ubuntu())),
            storage=Storage(file_system=estate.file_system),
        )
        cdk.CfnOutput(self, "LogIn", value=cluster.session_command)


app = cdk.App()
# A look-up needs account and region.
here = cdk.Environment(
    account=os.environ.get("CDK_DEFAULT_ACCOUNT", "111122223333"),
    region=os.environ.get("CDK_DEFAULT_REGION", "us-east-1"),
)
vpc_id = app.node.try_get_context("vpc_id") or "vpc-0123456789abcdef0"
estate = EstateStack(app, "team-estate", vpc_id=vpc_id, env=here)
TrainingStack(app, "team-estate-training", estate=estate, env=here)
app.synth()
