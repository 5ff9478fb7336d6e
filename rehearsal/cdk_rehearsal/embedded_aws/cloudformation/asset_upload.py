"""Uploads the file assets of a stack, as `cdk deploy` does."""

import io
import zipfile
from pathlib import Path

from cdk_rehearsal.assembly import DEFAULT_REGION, AssemblyStack
from cdk_rehearsal.embedded_aws.place import Place
from cdk_rehearsal.errors import AssemblyError

_EPOCH = (1980, 1, 1, 0, 0, 0)


def upload_assets(stack: AssemblyStack, place: Place) -> tuple[str, ...]:
    """
    Upload a stack's file assets, making the bootstrap bucket where it is missing, and return their S3 URLs.

    The account and region of the place replace the placeholders.
    """
    s3 = place.client("s3")
    urls = []
    for asset in stack.assets:
        bucket, key = _fill(asset.bucket, place), _fill(asset.key, place)
        if bucket not in {entry["Name"] for entry in s3.list_buckets()["Buckets"]}:
            location = {"CreateBucketConfiguration": {"LocationConstraint": place.region}}
            s3.create_bucket(Bucket=bucket, **({} if place.region == DEFAULT_REGION else location))
        body = zip_folder(asset.path) if asset.packaging == "zip" else asset.path.read_bytes()
        s3.put_object(Bucket=bucket, Key=key, Body=body)
        urls.append(f"s3://{bucket}/{key}")
    return tuple(urls)


def zip_folder(folder: Path) -> bytes:
    """Zip a folder so that the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
            entry.external_attr = (path.stat().st_mode & 0o777) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def _fill(text: str, place: Place) -> str:
    values = {"AWS::AccountId": place.account, "AWS::Region": place.region, "AWS::Partition": place.partition}
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    if "${" in text:
        raise AssemblyError(f"asset destinations may hold account, region and partition only, got {text}")
    return text
