"""Buckets of a cluster."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deeplearning_cdk.security.acknowledged_rules import acknowledge


def make_log_bucket(scope: Construct, construct_id: str, key: kms.IKey, *, days: int) -> s3.Bucket:
    """
    Create a bucket of logs, which outlives the stack because it explains a failed creation.

    It accepts TLS alone, is encrypted with the cluster's key, and deletes objects after so many days.
    """
    bucket = s3.Bucket(
        scope,
        construct_id,
        encryption=s3.BucketEncryption.KMS,
        encryption_key=key,
        bucket_key_enabled=True,
        enforce_ssl=True,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        versioned=True,
        lifecycle_rules=[
            s3.LifecycleRule(
                expiration=Duration.days(days),
                noncurrent_version_expiration=Duration.days(1),
                abort_incomplete_multipart_upload_after=Duration.days(1),
            )
        ],
        removal_policy=RemovalPolicy.RETAIN,
    )
    acknowledge(bucket, "log-bucket-access", "log-bucket-copy")
    return bucket
