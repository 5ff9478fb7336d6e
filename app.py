"""Make the stacks and synthesize them."""

import aws_cdk as cdk

from stacks.horovod_stack import HorovodStack

app = cdk.App(outdir="cdk.out", analytics_reporting=False, builtin_cloud_formation_validation=False)
HorovodStack(
    app,
    "deeplearning-cluster",
    cluster={},
    synthesizer=cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
)
app.synth()
