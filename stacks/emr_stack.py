"""Deployable stack of a cluster on EMR, and the choice between the platforms' stacks."""

from aws_cdk import CfnOutput, DefaultStackSynthesizer, Environment, Stack
from constructs import Construct

from deeplearning_cdk.emr.training import EmrTraining
from stacks.context import StackChoice
from stacks.horovod_stack import HorovodStack
from stacks.reader import read_props


class EmrStack(Stack):
    """
    Stack of a training cluster on EMR, with its outputs.

    Args:
        scope: The parent.
        choice: Choice of the user.

    Attributes:
        cluster: The cluster.

    Raises:
        ValueError: A value of the context cannot work; the message names the key, the rule and a way out.
    """

    def __init__(self, scope: Construct, choice: StackChoice) -> None:
        super().__init__(
            scope,
            choice.name,
            env=Environment(region=choice.region),
            tags=choice.tags,
            description="A deep-learning training cluster on EMR: one primary and its core instances",
            # The CLI checks the bootstrap stack's version by itself.
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        )
        self.cluster = EmrTraining(self, "Cluster", **read_props(self, choice.cluster, EmrTraining))
        CfnOutput(self, "ClusterName", value=self.cluster.cluster_name)
        CfnOutput(self, "EmrClusterId", value=self.cluster.cluster.ref)
        CfnOutput(self, "FileSystemId", value=self.cluster.file_system.file_system_id)
        CfnOutput(self, "LogBucket", value=self.cluster.log_bucket.bucket_name, description="Logs of EMR")
        CfnOutput(self, "LogIn", value=self.cluster.session_command, description="A shell on the primary")


def make_stack(scope: Construct, choice: StackChoice) -> HorovodStack | EmrStack:
    """Create the stack of the platform that the user chose."""
    return EmrStack(scope, choice) if choice.platform == "emr" else HorovodStack(scope, choice)
