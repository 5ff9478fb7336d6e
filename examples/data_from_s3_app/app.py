# ruff: noqa: INP001 - an app is a script, not a package
"""
A CDK app that trains on data in S3, with the software of a requirements file.

    pip install deeplearning-cdk
    npx cdk deploy --app "python app.py"

The stack makes the bucket. Upload the data, then start jobs: nodes look for it again until it is there.

    aws s3 cp coco.tar.gz s3://<the bucket of the outputs>/coco.tar.gz
"""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deeplearning_cdk import DataSource, JobEnvironment, Software, Storage, TrainingCluster, Workers

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


class DataFromS3Stack(cdk.Stack):
    """A bucket, and a cluster that brings what is in it to its nodes."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        bucket = s3.Bucket(
            self,
            "Data",
            encryption=s3.BucketEncryption.KMS,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
        )
        cluster = TrainingCluster(
            self,
            "Cluster",
            workers=Workers(instance_type="g5.12xlarge", desired_capacity=2),
            storage=Storage(
                data=[
                    # Unpacked once by the master on the shared file system: /opt/deeplearning/data/coco on every node.
                    DataSource("coco", bucket, "coco.tar.gz", target="efs"),
                    # Copied to a disk of each node, which reads it faster.
                    DataSource("backbone", bucket, "backbone/", target="local"),
                ]
            ),
            # Wheels are built once by the master, Horovod among them, and installed by every node.
            software=Software(environment=JobEnvironment.from_requirements(str(REQUIREMENTS), horovod="0.28.1")),
        )
        cdk.CfnOutput(self, "Bucket", value=bucket.bucket_name)
        cdk.CfnOutput(self, "LogIn", value=cluster.session_command)


app = cdk.App()
DataFromS3Stack(app, "team-data")
app.synth()
