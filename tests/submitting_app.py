"""The app of `make privileges`: `app.py` with a role that may submit jobs, so that its rights are used too."""

import os
import sys
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from deeplearning_cdk import EksTraining, SageMakerTraining
from stacks.cluster_stack import make_stack
from stacks.context import read_choices, read_context

ROOT = Path(__file__).parents[1]
SUBMITTER = "Submitter"


def add_submitter(stack):
    """Add a role that has what `grant_submit` grants, where an API takes jobs: others are submitted over SSH."""
    if isinstance(stack.cluster, SageMakerTraining | EksTraining):
        stack.cluster.grant_submit(iam.Role(stack, SUBMITTER, assumed_by=iam.AccountRootPrincipal()))


def main():
    """Write the cloud assembly of the context in the environment and of the arguments."""
    context = read_context(sys.argv[1:], os.environ, ROOT)
    app = cdk.App(
        context=context,
        outdir=os.environ["CDK_OUTDIR"],
        analytics_reporting=False,
        builtin_cloud_formation_validation=False,
    )
    for choice in read_choices(context):
        add_submitter(make_stack(app, choice))
    app.synth()


if __name__ == "__main__":
    main()
