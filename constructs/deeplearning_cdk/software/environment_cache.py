"""A bucket that keeps finished environments of jobs for other clusters."""

from dataclasses import dataclass
from typing import Annotated

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from deeplearning_cdk.props.check import check_fields
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
"""Below which keys the environments lie; it is written into policies and settings as it is."""


@dataclass(frozen=True)
class EnvironmentCache:
    """
    A place in S3 for finished environments: what one cluster built, every later one takes from there.

    The master reads and writes below the prefix, and nothing else of the bucket; workers read the shared file system.
    Whoever can write there decides which code runs on the nodes of every cluster that reads it: give it to
    clusters that trust each other.

    Args:
        bucket: The bucket, or its name; best in the clusters' region. With a key of the user's, pass a construct, whose
            key the master may then use.
        prefix: Folders that end with `/`. Default: environments/.

    Raises:
        ValueError: A value cannot be what it is for.
    """

    bucket: BucketName | s3.IBucket
    prefix: CachePrefix = "environments/"

    def __post_init__(self) -> None:
        """Check the values, which are written into user data and policies as they are."""
        check_fields(self, "environment_cache ")

    @property
    def settings(self) -> EnvironmentCacheSettings:
        """What nodes are told."""
        name = self.bucket if isinstance(self.bucket, str) else self.bucket.bucket_name
        return EnvironmentCacheSettings(name, self.prefix)

    def master_statements(self) -> list[iam.PolicyStatement]:
        """
        Return the rights of the master.

        A broken upload of many parts is ended, so that nobody pays for its parts (S3 user guide, "Aborting a multipart
        upload"). A listing says whether an object is missing or forbidden: without one S3 answers 403 in both cases
        (S3 API, "GetObject", permissions); it is asked with a prefix below the cache's own.
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
        Let the master encrypt and decrypt, where the bucket is a construct with a key of the user's.

        An upload of many parts needs both rights (S3 user guide, "Multipart upload API and permissions").
        """
        if not isinstance(self.bucket, str) and self.bucket.encryption_key is not None:
            self.bucket.encryption_key.grant(grantee, "kms:Decrypt", "kms:GenerateDataKey")


ChosenCache = EnvironmentCache | s3.IBucket
"""A cache, or a bucket that keeps one below the default prefix."""


def take_cache(cache: ChosenCache | None) -> EnvironmentCache | None:
    """Return the cache that the user chose."""
    return cache if cache is None or isinstance(cache, EnvironmentCache) else EnvironmentCache(cache)
