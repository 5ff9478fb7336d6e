# ruff: noqa: INP001 - an app is a script, not a package
"""
A CDK app with two clusters in one stack: one trains, a smaller one evaluates, and both see the same files.

    pip install deeplearning-cdk
    npx cdk deploy --app "python app.py"

The second cluster takes the VPC and the file system of the first, with the mount target that is there. A checkpoint of
the job `cifar` is /efs/jobs/cifar/checkpoints on the nodes of both; jobs with other names do not meet.
"""

import aws_cdk as cdk
from constructs import Construct

from deeplearning_cdk import Network, Storage, TrainingCluster, Workers


class TwoClustersStack(cdk.Stack):
    """Two clusters with one file system."""

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
