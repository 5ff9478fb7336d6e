"""Stacks of a cloud assembly, as `cdk deploy` reads them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.manifest import STACK, read_manifest, read_object

if TYPE_CHECKING:
    from cdk_rehearsal.place import Place  # which needs boto3

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
    """
    A container image that `cdk deploy` builds and pushes.

    Attributes:
        directory: The build context.
        dockerfile: The Dockerfile in it.
        build_args: Name -> value.
        name: Repository and tag, as they end an image's URI; the repository may hold placeholders.
    """

    directory: Path
    dockerfile: Path
    build_args: Mapping[str, str]
    name: str


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

    def find_image(self, uri: str, place: "Place") -> ImageAsset | None:
        """Return the asset behind the URI of an image at a place; None when the app does not build it."""
        registry = f"{place.account}.dkr.ecr.{place.region}.{place.url_suffix}"
        return next((image for image in self.images if uri == f"{registry}/{fill_place(image.name, place)}"), None)


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


def require_no_images(stack: AssemblyStack) -> None:
    """Raise AssemblyError for a stack with a container image, where nothing would run it."""
    if stack.images:
        raise AssemblyError(
            f"assets must be files in the rehearsal, which has no container engine, got docker images in {stack.name}; "
            "put them in a stack of their own, and choose the other with --stack NAME"
        )


def fill_place(text: str, place: "Place") -> str:
    """Fill the placeholders of an asset's destination; AssemblyError for one that the rehearsal does not know."""
    values = {"AWS::AccountId": place.account, "AWS::Region": place.region, "AWS::Partition": place.partition}
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    if "${" in text:
        raise AssemblyError(f"asset destinations may hold account, region and partition only, got {text}")
    return text


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
            source = entry["source"]
            if "directory" not in source:
                raise AssemblyError(f"images must be built from a folder of the assembly, got {source}")
            directory = assembly / source["directory"]
            dockerfile = directory / source.get("dockerFile", "Dockerfile")
            if not dockerfile.exists():
                raise AssemblyError(f"asset must exist, got {dockerfile}; synthesize again")
            for target in entry["destinations"].values():
                name = f"{target['repositoryName']}:{target['imageTag']}"
                yield ImageAsset(directory, dockerfile, source.get("dockerBuildArgs", {}), name)


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
