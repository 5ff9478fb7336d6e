"""Makes a case's buckets in the embedded S3; apart from what they are, so that reading a case needs no AWS."""

from collections.abc import Iterable

from cdk_rehearsal.assembly import DEFAULT_REGION
from cdk_rehearsal.embedded_aws.place import Place
from deeplearning_rehearsal.cases.format.account_bucket import AccountBucket
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments


def put_buckets(place: Place, buckets: Iterable[AccountBucket], kept: KeptEnvironments) -> None:
    """
    Make the buckets with their policies and what is in them.

    Raises:
        RehearsalError: A bucket is to hold environments of earlier rehearsals, and none is kept.
    """
    s3 = place.client("s3")
    for bucket in buckets:
        location = {"CreateBucketConfiguration": {"LocationConstraint": place.region}}
        s3.create_bucket(Bucket=bucket.name, **({} if place.region == DEFAULT_REGION else location))
        if bucket.denies:
            s3.put_bucket_policy(Bucket=bucket.name, Policy=bucket.make_policy(place.partition))
        if bucket.damaged_environments:
            for key, content in kept.list_damaged():
                s3.put_object(Bucket=bucket.name, Key=key, Body=content)
