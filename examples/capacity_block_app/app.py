# ruff: noqa: INP001 - an app is a script, not a package
"""
CDK app that trains in a Capacity Block: in the block's zone, with workers that run while the block lasts.

    pip install ../..                # a checkout in which `make setup` has run
    npx cdk deploy --app "python app.py" -c reservation=cr-0123456789abcdef0 -c zone=us-east-1a

Deploy it before the block begins: the stack completes with the master alone, and the workers launch and join when EC2
has delivered the block. Until then, `deeplearning-cdk status` says what they wait for. Nodes notify the training before
the block ends. The master is an on-demand CPU type: it does not train, so no GPU instance is needed outside the block,
and the cluster's logs and shared file system outlive it.
"""

import aws_cdk as cdk
from constructs import Construct

from deeplearning_cdk import Master, Network, Purchase, TrainingCluster, Workers

WORKERS = 4


class CapacityBlockStack(cdk.Stack):
    """Cluster whose workers run in a purchased Capacity Block."""

    def __init__(self, scope: Construct, construct_id: str, *, reservation: str, zone: str) -> None:
        super().__init__(scope, construct_id, env=cdk.Environment(region=zone[:-1]))
        cluster = TrainingCluster(
            self,
            "Cluster",
            workers=Workers(
                instance_type="p5.48xlarge",
                purchase=Purchase.capacity_block(reservation),
                desired_capacity=WORKERS,
            ),
            master=Master(instance_type="m7i.2xlarge"),
            network=Network(availability_zone=zone),
        )
        cdk.CfnOutput(self, "LogIn", value=cluster.session_command)


app = cdk.App()
CapacityBlockStack(
    app,
    "team-block",
    reservation=app.node.try_get_context("reservation") or "cr-0123456789abcdef0",
    zone=app.node.try_get_context("zone") or "us-east-1a",
)
app.synth()
