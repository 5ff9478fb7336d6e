"""Buckets of a cluster: encrypted with its key, closed to the public and to plain HTTP, with versions."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deeplearning_cdk.security.acknowledged_rules import acknowledge

_OLD_MODEL_DAYS = 30
"""Time for which a model that is deleted or overwritten can be restored."""


def make_log_bucket(scope: Construct, construct_id: str, key: kms.IKey, *, days: int) -> s3.Bucket:
    """
    Create a bucket of logs, which outlives the stack because it explains a failed creation.

    It accepts TLS alone, is encrypted with the cluster's key, and deletes objects after so many days.
    """
    rule = s3.LifecycleRule(
        expiration=Duration.days(days),
        noncurrent_version_expiration=Duration.days(1),
        abort_incomplete_multipart_upload_after=Duration.days(1),
    )
    return _make_bucket(scope, construct_id, key, rule, RemovalPolicy.RETAIN)


def make_model_bucket(scope: Construct, construct_id: str, key: kms.IKey) -> s3.Bucket:
    """
    Create a bucket of models, which outlives the stack, except when the stack's own creation fails.

    It accepts TLS alone, is encrypted with the cluster's key, and keeps a deleted model for 30 days.
    """
    rule = s3.LifecycleRule(
        noncurrent_version_expiration=Duration.days(_OLD_MODEL_DAYS),
        abort_incomplete_multipart_upload_after=Duration.days(1),
    )
    return _make_bucket(scope, construct_id, key, rule, RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)


def _make_bucket(
    scope: Construct, construct_id: str, key: kms.IKey, rule: s3.LifecycleRule, removal_policy: RemovalPolicy
) -> s3.Bucket:
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
        lifecycle_rules=[rule],
        removal_policy=removal_policy,
    )
    acknowledge(bucket, "log-bucket-access", "log-bucket-copy")
    return bucket
