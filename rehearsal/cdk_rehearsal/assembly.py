"""Stacks of a cloud assembly, as `cdk deploy` reads them."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.manifest import LOGICAL_ID, StackArtifact, find_stacks, read_object

if TYPE_CHECKING:
    from cdk_rehearsal.place import Place  # which needs boto3

DEFAULT_ACCOUNT = "123456789012"
DEFAULT_REGION = "us-east-1"
"""Account and region of a stack whose assembly leaves them open."""
DEFAULT_EXECUTION_ROLE = (
    "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/cdk-hnb659fds-cfn-exec-role-${AWS::AccountId}-${AWS::Region}"
)
_DUMMY_ZONE = '"dummy1a"'
_NESTED_TEMPLATE = ".nested.template.json"
"""End of the files in which the CDK writes the templates of nested stacks."""


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

    Attributes:
        name: Its name in account and region.
        account: Account id; a stand-in where the assembly leaves it open.
        region: Region; us-east-1 where the assembly leaves it open.
        template: As `cdk synth` wrote it.
        assets: Files to upload.
        tags: Tags of the stack itself, which CloudFormation adds to its resources.
        images: Container images to build.
        nested: File name -> template of the nested stacks at any depth.
        needs: Stacks that must be deployed before, in that order.
        path: Its path in the app, such as `Prod/training`.
        constructs: Logical id -> path of the construct in the app.
        execution_role: ARN of the role with which CloudFormation creates resources, which may hold placeholders.
            Default: that of the CDK's own bootstrap stack.
        bootstrap_parameter: Parameter of Systems Manager with the bootstrap stack's version; empty without one.
    """

    name: str
    account: str
    region: str
    template: Mapping[str, Any]
    assets: tuple[FileAsset, ...]
    tags: Mapping[str, str] = field(default_factory=dict)
    images: tuple[ImageAsset, ...] = ()
    nested: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs: "tuple[AssemblyStack, ...]" = ()
    path: str = ""
    constructs: Mapping[str, str] = field(default_factory=dict)
    execution_role: str = DEFAULT_EXECUTION_ROLE
    bootstrap_parameter: str = ""

    @property
    def templates(self) -> tuple[Mapping[str, Any], ...]:
        """Its template, and those of its nested stacks."""
        return (self.template, *self.nested.values())

    @property
    def deployment(self) -> "tuple[AssemblyStack, ...]":
        """The stacks that it needs, and the stack itself."""
        return (*self.needs, self)

    def find_image(self, uri: str, place: "Place") -> ImageAsset | None:
        """Return the asset behind the URI of an image at a place; None when the app does not build it."""
        registry = f"{place.account}.dkr.ecr.{place.region}.{place.url_suffix}"
        return next((image for image in self.images if uri == f"{registry}/{fill_place(image.name, place)}"), None)


def read_stacks(assembly: Path, patterns: Sequence[str] = ()) -> tuple[AssemblyStack, ...]:
    """
    Read stacks, each after those that it needs.

    Args:
        assembly: Folder of the app's assembly.
        patterns: Names, paths or patterns, as the CDK CLI takes them. Default: all stacks, those of Stages too.

    Raises:
        AssemblyError: The folder is no assembly, no stack fits a pattern, or the stacks are of several accounts or
            regions, of which a rehearsal has one.
    """
    found = find_stacks(assembly, patterns)
    place = _find_place(found)
    stacks: dict[tuple[Path, str], AssemblyStack] = {}
    for each in found:
        needs = dict.fromkeys(name for direct in each.list_needs() for name in _list_all_needs(direct))
        stacks[each.folder, each.key] = _read_stack(each, place, tuple(stacks[name] for name in needs))
    return tuple(stacks.values())


def read_stack(assembly: Path, name: str | None) -> AssemblyStack:
    """
    Read a stack by its name, path, artifact id or pattern, with the stacks that it needs; None for the only one.

    AssemblyError when the folder is no assembly, or has not exactly the one stack.
    """
    chosen = [each for each in find_stacks(assembly, [name] if name else ()) if name is None or each.fits(name)]
    if len(chosen) != 1:
        known = ", ".join(each.path for each in chosen)
        raise AssemblyError(f"stack must name one of {known}, got {name!r}")
    return read_stacks(assembly, [chosen[0].path])[-1]


def _list_all_needs(stack: StackArtifact) -> Iterator[tuple[Path, str]]:
    for need in stack.list_needs():
        yield from _list_all_needs(need)
    yield stack.folder, stack.key


def _find_place(stacks: Sequence[StackArtifact]) -> tuple[str, str]:
    """Return account and region of stacks; those that leave them open are deployed where the others are."""
    places = {tuple(_read_environment(each).split("/")): each.path for each in stacks}
    accounts = {account for account, _ in places} - {"unknown-account"}
    regions = {region for _, region in places} - {"unknown-region"}
    if len(accounts) > 1 or len(regions) > 1:
        listing = ", ".join(f"{path} in {account}/{region}" for (account, region), path in sorted(places.items()))
        raise AssemblyError(
            f"stacks of a rehearsal must be of one account and region, got {listing}; choose those of one with --stack"
        )
    return next(iter(accounts), DEFAULT_ACCOUNT), next(iter(regions), DEFAULT_REGION)


def _read_environment(stack: StackArtifact) -> str:
    return str(stack.entry.get("environment", "aws://unknown-account/unknown-region")).removeprefix("aws://")


def _read_stack(stack: StackArtifact, place: tuple[str, str], needs: tuple[AssemblyStack, ...]) -> AssemblyStack:
    account, region = place
    template = stack.read_template()
    if _DUMMY_ZONE in json.dumps(template):
        raise AssemblyError(
            f"stack {stack.path} must have the zones of its region, got dummy1a, the CDK's stand-in for a lookup; "
            "synthesize once with credentials (cdk.context.json keeps the answer), or name availability_zones"
        )
    assets = tuple(_read_assets(stack))
    return AssemblyStack(
        name=stack.name,
        account=account,
        region=region,
        template=template,
        assets=assets,
        tags=stack.entry["properties"].get("tags", {}),
        images=tuple(_read_images(stack)),
        nested={each.path.name: read_object(each.path) for each in assets if each.path.name.endswith(_NESTED_TEMPLATE)},
        needs=needs,
        path=stack.path,
        constructs={
            logical_id: path.removeprefix("/") for path, kind, logical_id in stack.list_metadata() if kind == LOGICAL_ID
        },
        execution_role=stack.entry["properties"].get("cloudFormationExecutionRoleArn", DEFAULT_EXECUTION_ROLE),
        bootstrap_parameter=stack.entry["properties"].get("bootstrapStackVersionSsmParameter", ""),
    )


def require_no_images(stack: AssemblyStack) -> None:
    """Raise AssemblyError for a stack with a container image, where nothing would run it."""
    if stack.images:
        raise AssemblyError(
            f"assets must be files in the rehearsal, which has no container engine, got docker images in {stack.name}; "
            "put them in a stack of their own, and choose the other with --stack NAME"
        )


def require_parameters(stacks: Sequence[AssemblyStack], parameters: Collection[str]) -> None:
    """Raise AssemblyError for a parameter that no template declares."""
    declared = sorted({name for stack in stacks for name in stack.template.get("Parameters", {})})
    for name in parameters:
        if name not in declared:
            raise AssemblyError(f"parameter must be one of {', '.join(declared) or 'none'}, got {name}")


def fill_place(text: str, place: "Place") -> str:
    """Fill the placeholders of an asset's destination; AssemblyError for one that the rehearsal does not know."""
    values = {"AWS::AccountId": place.account, "AWS::Region": place.region, "AWS::Partition": place.partition}
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    if "${" in text:
        raise AssemblyError(f"asset destinations may hold account, region and partition only, got {text}")
    return text


def _read_manifests(stack: StackArtifact) -> Iterator[Mapping[str, Any]]:
    for key in stack.entry.get("dependencies", []):
        artifact = stack.artifacts.get(key, {})
        if artifact.get("type") == "cdk:asset-manifest":
            yield read_object(stack.folder / artifact["properties"]["file"])


def _read_images(stack: StackArtifact) -> Iterator[ImageAsset]:
    for manifest in _read_manifests(stack):
        for entry in manifest.get("dockerImages", {}).values():
            source = entry["source"]
            if "directory" not in source:
                raise AssemblyError(f"images must be built from a folder of the assembly, got {source}")
            directory = stack.folder / source["directory"]
            dockerfile = directory / source.get("dockerFile", "Dockerfile")
            if not dockerfile.exists():
                raise AssemblyError(f"asset must exist, got {dockerfile}; synthesize again")
            for target in entry["destinations"].values():
                name = f"{target['repositoryName']}:{target['imageTag']}"
                yield ImageAsset(directory, dockerfile, source.get("dockerBuildArgs", {}), name)


def _read_assets(stack: StackArtifact) -> Iterator[FileAsset]:
    template = stack.entry["properties"]["templateFile"]
    for manifest in _read_manifests(stack):
        for entry in manifest.get("files", {}).values():
            source = entry["source"]
            if "path" not in source:
                raise AssemblyError(f"assets must be files of the assembly, got {source}")
            if source["path"] == template:
                continue  # the template itself is deployed from the assembly
            packaging = source.get("packaging", "file")
            path = stack.folder / source["path"]
            if not path.exists():
                raise AssemblyError(f"asset must exist, got {path}; synthesize again")
            for target in entry["destinations"].values():
                yield FileAsset(path, packaging, target["bucketName"], target["objectKey"])
