"""Resources that calls of S3 name, from the Service Authorization Reference, "Amazon S3"."""

from collections.abc import Iterator
from urllib.parse import unquote

from cdk_rehearsal.iam.account import Account, Parameters, Target


def targets_of_object(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name an object, and the headers of its upload by which policies decide."""
    names = {"ACL": "acl", "ServerSideEncryption": "server-side-encryption"}
    names["SSEKMSKeyId"] = "server-side-encryption-aws-kms-key-id"
    context = {f"s3:x-amz-{key}": str(parameters[name]) for name, key in names.items() if name in parameters}
    yield f"{_format_bucket(parameters, account)}/{parameters['Key']}", context


def targets_of_copied_object(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name the source of a copy, `bucket/key` in a header; ValueError for that of a version or an access point."""
    source, _, version = str(parameters["CopySource"]).partition("?")
    bucket, _, key = unquote(source).lstrip("/").partition("/")
    if version or bucket.startswith("arn:") or not key:
        raise ValueError(f"copy source that is bucket/key, but {source}")
    yield f"{_format_bucket({'Bucket': bucket}, account)}/{key}", {}


def list_copied_tags(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name the source of a copy whose tags are copied too, which S3 does by default."""
    if parameters.get("TaggingDirective") != "REPLACE":
        yield from targets_of_copied_object(parameters, account)


def targets_of_bucket(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a bucket, and what is listed of it."""
    names = {"prefix": "s3:prefix", "delimiter": "s3:delimiter", "max-keys": "s3:max-keys"}
    context = {key: str(parameters[name]) for name, key in names.items() if name in parameters}
    yield _format_bucket(parameters, account), context


def targets_of_objects(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name each object that a call deletes; S3 refuses key by key, the rehearsal the call for the first of them."""
    for key, _ in parameters["Keys"]:
        yield f"{_format_bucket(parameters, account)}/{key}", {}


def list_deleted_versions(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name each object of which a call deletes a version."""
    for key, has_version in parameters["Keys"]:
        if has_version:
            yield f"{_format_bucket(parameters, account)}/{key}", {}


def _format_bucket(parameters: Parameters, account: Account) -> str:
    partition = account.arn("s3", "").split(":")[1]
    return f"arn:{partition}:s3:::{parameters['Bucket']}"


COPY_RIGHTS = (("s3:GetObject", targets_of_copied_object, "Decrypt"), ("s3:GetObjectTagging", list_copied_tags, ""))
"""Rights to the source of a copy (S3 API Reference, "CopyObject", "Permissions"), with the use of its key."""
