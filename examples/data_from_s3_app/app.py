# ruff: noqa: INP001 - an app is a script, not a package
"""
CDK app that trains on data in S3, with the software of a requirements file.

    pip install ../..                # a checkout in which `make setup` has run
    npx cdk deploy --app "python app.py"

The stack creates the bucket. Upload the data, then start jobs: nodes retry until the data exists.

    aws s3 cp coco.tar.gz s3://<the bucket of the outputs>/coco.tar.gz
"""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deeplearning_cdk import DataSource, JobEnvironment, Software, Storage, TrainingCluster, Workers

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


class DataFromS3Stack(cdk.Stack):
    """Bucket, and cluster that copies its data to the nodes."""

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
                    # The master unpacks it once on the shared file system: /opt/deeplearning/data/coco on every node.
                    DataSource("coco", bucket, "coco.tar.gz", target="efs"),
                    # Each node copies it to a local disk, for faster reads.
                    DataSource("backbone", bucket, "backbone/", target="local"),
                ]
            ),
            # The master builds wheels once, Horovod included, and every node installs them.
            software=Software(environment=JobEnvironment.from_requirements(str(REQUIREMENTS), horovod="0.28.1")),
        )
        cdk.CfnOutput(self, "Bucket", value=bucket.bucket_name)
        cdk.CfnOutput(self, "LogIn", value=cluster.session_command)


app = cdk.App()
DataFromS3Stack(app, "team-data")
app.synth()
