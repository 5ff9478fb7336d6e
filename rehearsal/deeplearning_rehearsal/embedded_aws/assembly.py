"""Reads a cloud assembly and uploads its file assets, as `cdk deploy` does."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplearning_rehearsal.embedded_aws.errors import AssemblyError
from deeplearning_rehearsal.embedded_aws.place import DEFAULT_ACCOUNT, DEFAULT_REGION, Place

_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class FileAsset:
    """
    A file asset with its destination.

    Attributes:
        path: File or folder in the assembly.
        packaging: `file`, or `zip` for a folder that is zipped on upload.
        bucket: Name of the bucket, placeholders included.
        key: Object key, placeholders included.
    """

    path: Path
    packaging: str
    bucket: str
    key: str


@dataclass(frozen=True)
class AssemblyStack:
    """
    A stack of a cloud assembly.

    Attributes:
        name: Name of the stack.
        account: Account that it is for; a stand-in where the assembly leaves it open.
        region: Region that it is for; us-east-1 where the assembly leaves it open.
        template: The template.
        assets: File assets that it needs.
    """

    name: str
    account: str
    region: str
    template: Mapping[str, Any]
    assets: tuple[FileAsset, ...]


def read_stack(assembly: Path, name: str | None) -> AssemblyStack:
    """
    Read a stack of a cloud assembly.

    Args:
        assembly: Folder of the cloud assembly.
        name: Name or artifact id of the stack. None: the only one.

    Raises:
        AssemblyError: The folder is no assembly, or has not exactly the one stack.
    """
    artifacts = _read_json(assembly / "manifest.json").get("artifacts", {})
    stacks = {key: entry for key, entry in artifacts.items() if entry.get("type") == "aws:cloudformation:stack"}
    names = {key: str(entry.get("properties", {}).get("stackName", key)) for key, entry in stacks.items()}
    chosen = [key for key in stacks if name is None or name in (key, names[key])]
    if len(chosen) != 1:
        raise AssemblyError(
            f"stack must name one of {sorted(names.values())}, got {name!r}; choose one with --stack NAME"
        )
    artifact = stacks[chosen[0]]
    _, _, place = str(artifact.get("environment", "aws://unknown-account/unknown-region")).partition("aws://")
    account, _, region = place.partition("/")
    return AssemblyStack(
        name=names[chosen[0]],
        account=DEFAULT_ACCOUNT if account == "unknown-account" else account,
        region=DEFAULT_REGION if region == "unknown-region" else region,
        template=_read_json(assembly / artifact["properties"]["templateFile"]),
        assets=tuple(_read_assets(assembly, artifacts, artifact)),
    )


def upload_assets(stack: AssemblyStack, place: Place) -> tuple[str, ...]:
    """
    Upload a stack's file assets, making the bootstrap bucket where it is missing.

    Args:
        stack: The stack.
        place: Where to; its account and region replace the placeholders.

    Returns:
        The S3 URLs of the assets.
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


def _read_assets(assembly: Path, artifacts: Mapping[str, Any], stack: Mapping[str, Any]) -> list[FileAsset]:
    template = stack["properties"]["templateFile"]
    assets: list[FileAsset] = []
    for key in stack.get("dependencies", []):
        artifact = artifacts.get(key, {})
        if artifact.get("type") != "cdk:asset-manifest":
            continue
        manifest = _read_json(assembly / artifact["properties"]["file"])
        if manifest.get("dockerImages"):
            raise AssemblyError(f"assets must be files in the rehearsal, got docker images in {key}")
        for entry in manifest.get("files", {}).values():
            source = entry["source"]
            if "path" not in source:
                raise AssemblyError(f"assets must be files of the assembly, got {source}")
            if source["path"] == template:
                continue  # the template itself is deployed from the assembly
            packaging = source.get("packaging", "file")
            path = assembly / source["path"]
            if not path.exists():
                raise AssemblyError(f"asset must exist, got {path}; synthesize again")
            assets += [
                FileAsset(path, packaging, target["bucketName"], target["objectKey"])
                for target in entry["destinations"].values()
            ]
    return assets


def _fill(text: str, place: Place) -> str:
    values = {"AWS::AccountId": place.account, "AWS::Region": place.region, "AWS::Partition": place.partition}
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    if "${" in text:
        raise AssemblyError(f"asset destinations may hold account, region and partition only, got {text}")
    return text


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise AssemblyError(f"cloud assembly must have a readable {path.name}: {error}; synthesize again") from error
    if not isinstance(document, dict):
        raise AssemblyError(f"{path.name} must be a JSON object")
    return document
