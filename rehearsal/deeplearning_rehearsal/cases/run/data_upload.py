"""Puts a case's objects into the embedded S3; apart from what they are, so that reading a case needs no AWS."""

from collections.abc import Iterable

from cdk_rehearsal.assembly import DEFAULT_REGION
from cdk_rehearsal.embedded_aws.place import Place
from deeplearning_rehearsal.cases.format.data_objects import DataObject


def put_objects(place: Place, objects: Iterable[DataObject]) -> None:
    """Make the buckets and put the objects."""
    s3 = place.client("s3")
    location = {"CreateBucketConfiguration": {"LocationConstraint": place.region}}
    made: set[str] = set()
    for item in objects:
        if item.bucket not in made:
            s3.create_bucket(Bucket=item.bucket, **({} if place.region == DEFAULT_REGION else location))
            made.add(item.bucket)
        for key, content in item.make_objects().items():
            s3.put_object(Bucket=item.bucket, Key=key, Body=content)
