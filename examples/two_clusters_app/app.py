# ruff: noqa: INP001 - an app is a script, not a package
"""
CDK app with two clusters in one stack: one trains, a smaller one evaluates, and both have the same files.

    pip install ../..                # a checkout in which `make setup` has run
    npx cdk deploy --app "python app.py"

The second cluster uses the VPC, the file system and the mount target of the first. Checkpoints of the job `cifar` are
in /efs/jobs/cifar/checkpoints on the nodes of both; jobs with different names do not share files.
"""

import aws_cdk as cdk
from constructs import Construct

from deeplearning_cdk import Network, Storage, TrainingCluster, Workers


class TwoClustersStack(cdk.Stack):
    """Two clusters with one shared file system."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        training = TrainingCluster(
            self,
            "Training",
            workers=Workers(instance_type="g5.12xlarge", desired_capacity=4),
            storage=Storage(throughput=cdk.Size.mebibytes(256)),
        )
        evaluation = TrainingCluster(
            self,
            "Evaluation",
            workers=Workers(instance_type="g5.xlarge", desired_capacity=1),
            network=Network(vpc=training.network.vpc),
            storage=Storage(file_system=training.file_system),
        )
        cdk.CfnOutput(self, "LogInToTrain", value=training.session_command)
        cdk.CfnOutput(self, "LogInToEvaluate", value=evaluation.session_command)


app = cdk.App()
TwoClustersStack(app, "team-pair")
app.synth()
