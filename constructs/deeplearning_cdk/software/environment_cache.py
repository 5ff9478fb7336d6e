"""Cache of built job environments in S3, shared by clusters."""

from dataclasses import dataclass
from typing import Annotated

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from deeplearning_cdk.props.check import check_fields, names_checked
from deeplearning_cdk.props.rules import matching
from deeplearning_cdk.storage.data_source import BucketName, name_bucket_arn
from deeplearning_contract.setting_parts import EnvironmentCacheSettings

CachePrefix = Annotated[
    str,
    matching(
        r"(?=.{2,256}$)([A-Za-z0-9_-][A-Za-z0-9._-]*/)+",
        "be folders of letters, digits and ._- that end with /, 256 characters at most",
        "write e.g. environments/",
    ),
]
"""Key prefix of the environments; it is written into policies and settings unchanged."""


@names_checked
@dataclass(frozen=True)
class EnvironmentCache:
    """
    Cache of built environments in S3: later clusters download the environments of earlier ones.

    The master reads and writes below the prefix only; workers read the shared file system. Anyone who can write to the
    cache decides which code runs on the nodes of every cluster that reads it: share it only between clusters that trust
    each other.

    Args:
        bucket: The bucket, or its name; prefer the clusters' region. For a bucket with a customer managed key, pass a
            construct: the master may then use the key.
        prefix: Folders that end with `/`. Default: environments/.

    Raises:
        ValueError: A value breaks its rule.
    """

    bucket: BucketName | s3.IBucket
    prefix: CachePrefix = "environments/"

    def __post_init__(self) -> None:
        check_fields(self, "software.environment_cache.")

    @property
    def settings(self) -> EnvironmentCacheSettings:
        """Settings of the nodes."""
        name = self.bucket if isinstance(self.bucket, str) else self.bucket.bucket_name
        return EnvironmentCacheSettings(name, self.prefix)

    def master_statements(self) -> list[iam.PolicyStatement]:
        """
        Return the permissions of the master.

        It aborts a failed multipart upload, so that its parts are not charged (S3 user guide, "Aborting a multipart
        upload"). Permission to list the bucket distinguishes a missing object from a forbidden one: without it S3
        returns 403 in both cases (S3 API, "GetObject", permissions); listings are limited to the cache's prefix.
        """
        bucket = name_bucket_arn(self.bucket)
        return [
            iam.PolicyStatement(
                actions=["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"],
                resources=[f"{bucket}/{self.prefix}*"],
            ),
            iam.PolicyStatement(
                actions=["s3:ListBucket"],
                resources=[bucket],
                conditions={"StringLike": {"s3:prefix": f"{self.prefix}*"}},
            ),
        ]

    def grant_key(self, grantee: iam.IGrantable) -> None:
        """
        Allow the master to encrypt and decrypt, where the bucket is a construct with a customer managed key.

        A multipart upload needs both permissions (S3 user guide, "Multipart upload API and permissions").
        """
        if not isinstance(self.bucket, str) and self.bucket.encryption_key is not None:
            self.bucket.encryption_key.grant(grantee, "kms:Decrypt", "kms:GenerateDataKey")
