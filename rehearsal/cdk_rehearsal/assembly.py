"""Stacks of a cloud assembly, as `cdk deploy` reads them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.manifest import STACK, read_manifest, read_object

DEFAULT_ACCOUNT = "123456789012"
DEFAULT_REGION = "us-east-1"
"""Account and region of a stack whose assembly leaves them open."""


@dataclass(frozen=True)
class FileAsset:
    """
    A file asset with its destination, whose bucket and key may hold placeholders.

    `packaging` is `file`, or `zip` for a folder that is zipped on upload.
    """

    path: Path
    packaging: str
    bucket: str
    key: str


@dataclass(frozen=True)
class ImageAsset:
    """A container image that is built from a folder with a Dockerfile; its tag is at the end of its URI."""

    folder: Path
    tag: str


@dataclass(frozen=True)
class AssemblyStack:
    """
    A stack of a cloud assembly with its assets.

    Where the assembly leaves them open, the account is a stand-in and the region us-east-1.
    """

    name: str
    account: str
    region: str
    template: Mapping[str, Any]
    assets: tuple[FileAsset, ...]
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of the stack itself, which CloudFormation adds to its resources."""
    images: tuple[ImageAsset, ...] = ()


def read_stack(assembly: Path, name: str | None) -> AssemblyStack:
    """
    Read a stack by its name or artifact id; None for the only one.

    AssemblyError when the folder is no assembly, or has not exactly the one stack.
    """
    artifacts = read_manifest(assembly)["artifacts"]
    stacks = {key: entry for key, entry in artifacts.items() if entry.get("type") == STACK}
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
        template=read_object(assembly / artifact["properties"]["templateFile"]),
        assets=tuple(_read_assets(assembly, artifacts, artifact)),
        tags=artifact["properties"].get("tags", {}),
        images=tuple(_read_images(assembly, artifacts, artifact)),
    )


def _read_manifests(
    assembly: Path, artifacts: Mapping[str, Any], stack: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    for key in stack.get("dependencies", []):
        artifact = artifacts.get(key, {})
        if artifact.get("type") == "cdk:asset-manifest":
            yield read_object(assembly / artifact["properties"]["file"])


def _read_images(assembly: Path, artifacts: Mapping[str, Any], stack: Mapping[str, Any]) -> Iterator[ImageAsset]:
    for manifest in _read_manifests(assembly, artifacts, stack):
        for entry in manifest.get("dockerImages", {}).values():
            if "directory" not in entry["source"]:
                raise AssemblyError(f"images must be built from a folder of the assembly, got {entry['source']}")
            folder = assembly / entry["source"]["directory"]
            yield from (ImageAsset(folder, target["imageTag"]) for target in entry["destinations"].values())


def _read_assets(assembly: Path, artifacts: Mapping[str, Any], stack: Mapping[str, Any]) -> list[FileAsset]:
    template = stack["properties"]["templateFile"]
    assets: list[FileAsset] = []
    for manifest in _read_manifests(assembly, artifacts, stack):
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
