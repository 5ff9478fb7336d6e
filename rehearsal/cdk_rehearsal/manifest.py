"""Files of a cloud assembly: its manifests, the stacks that they list, and the messages that the app left in them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import AssemblyError

MANIFEST = "manifest.json"
STACK, NESTED = "aws:cloudformation:stack", "cdk:cloud-assembly"
"""Types of artifacts: a stack, and the assembly of a Stage."""
LOGICAL_ID, WARNING, ERROR = "aws:cdk:logicalId", "aws:cdk:warning", "aws:cdk:error"
"""Types of metadata; the CDK CLI prints warnings and errors, and deploys nothing with an error."""

_WILD = re.compile(r"(\*\*|\*|\?)")


@dataclass(frozen=True)
class Message:
    """A warning or an error that the app attached to a construct."""

    type: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True)
class StackArtifact:
    """
    A stack as a manifest lists it.

    Attributes:
        folder: The assembly that has it: that of the app, or one of a Stage inside.
        key: Its artifact id.
        entry: Its artifact.
        artifacts: All artifacts of its assembly.
    """

    folder: Path
    key: str
    entry: Mapping[str, Any]
    artifacts: Mapping[str, Mapping[str, Any]]

    @property
    def name(self) -> str:
        """Name of the stack in its account and region."""
        return str(self.entry["properties"].get("stackName", self.key))

    @property
    def path(self) -> str:
        """Path of the stack in the app, such as `Prod/training`, which the CDK CLI shows and takes."""
        return str(self.entry.get("displayName", self.key)).partition(" (")[0]

    def read_template(self) -> dict[str, Any]:
        """Return its template."""
        return read_object(self.folder / self.entry["properties"]["templateFile"])

    def fits(self, pattern: str) -> bool:
        """Return whether a name or a path means the stack; in a path, `*` stands for anything but a slash."""
        parts = [{"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part)) for part in _WILD.split(pattern)]
        return pattern in (self.name, self.key) or re.fullmatch("".join(parts), self.path) is not None

    def list_metadata(self) -> Iterator[tuple[str, str, str]]:
        """Yield path, type and data of its metadata, which the CDK has in the manifest or in a file of its own."""
        file = self.entry.get("additionalMetadataFile")
        for metadata in (self.entry.get("metadata", {}), read_object(self.folder / file) if file else {}):
            for path, entries in metadata.items():
                yield from ((path, entry["type"], str(entry.get("data"))) for entry in entries)

    def list_needs(self) -> "tuple[StackArtifact, ...]":
        """Return the stacks that must be deployed directly before it."""
        needs = ((key, self.artifacts.get(key, {})) for key in self.entry.get("dependencies", ()))
        return tuple(
            StackArtifact(self.folder, key, entry, self.artifacts) for key, entry in needs if entry.get("type") == STACK
        )


def find_stacks(assembly: Path, patterns: Sequence[str] = ()) -> tuple[StackArtifact, ...]:
    """
    Return the stacks of an assembly, each after those that it needs, as `cdk deploy` orders them.

    Args:
        assembly: Folder of the app's assembly.
        patterns: Names, paths or patterns of stacks; what these need is with them. Default: all, those of Stages too.

    Raises:
        AssemblyError: No stack fits a pattern, or there is none at all.
    """
    stacks = tuple(_list_stacks(assembly))
    for pattern in patterns:
        if not any(stack.fits(pattern) for stack in stacks):
            known = ", ".join(stack.path for stack in stacks) or "no stack at all"
            raise AssemblyError(f"stack must name one of {known}, got {pattern!r}")
    if not stacks:
        raise AssemblyError(f"assembly must have a stack, got {assembly} without one; add one to the app")
    found: dict[tuple[Path, str], StackArtifact] = {}

    def add(stack: StackArtifact) -> None:
        for need in stack.list_needs():
            add(need)
        found.setdefault((stack.folder, stack.key), stack)

    for stack in stacks:
        if not patterns or any(stack.fits(pattern) for pattern in patterns):
            add(stack)
    return tuple(found.values())


def read_manifest(assembly: Path) -> dict[str, Any]:
    """
    Read the manifest of an assembly.

    Raises:
        AssemblyError: The path is not a folder that an app was synthesized to; the message says how to do that.
    """
    if found := _describe_lack(assembly):
        raise AssemblyError(
            f"assembly must be the folder of a synthesized app, got {assembly}, {found}; run: CDK_OUTDIR={assembly} "
            f"python app.py, or: cdk synth --output {assembly} (without either, cdk.App() writes to a temporary folder)"
        )
    manifest = read_object(assembly / MANIFEST)
    artifacts = manifest.get("artifacts")
    if not isinstance(artifacts, dict) or not all(isinstance(each, dict) for each in artifacts.values()):
        raise AssemblyError(f"{assembly / MANIFEST} must list the artifacts of an app, it lists none; synthesize again")
    for name, artifact in artifacts.items():
        key = {STACK: "templateFile", NESTED: "directoryName"}.get(str(artifact.get("type")))
        if key is not None and not isinstance(artifact.get("properties", {}).get(key), str):
            raise AssemblyError(
                f"artifact {name} of {assembly / MANIFEST} must have a {key}, it has none in version "
                f"{manifest.get('version')} of the format; synthesize again, or upgrade deeplearning-cdk"
            )
    return manifest


def read_object(path: Path) -> dict[str, Any]:
    """Read a file of an assembly; AssemblyError when it is not there, or not a JSON object."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise AssemblyError(f"assembly must have {path}: {error.strerror}; synthesize again") from error
    except ValueError as error:
        raise AssemblyError(f"{path} must be JSON: {error}; synthesize again") from error
    if not isinstance(document, dict):
        raise AssemblyError(f"{path} must be a JSON object, it is another value; synthesize again")
    return document


def read_messages(assembly: Path, patterns: Sequence[str] = ()) -> tuple[Message, ...]:
    """Return the warnings and errors of stacks, in the order of their deployment, each once; by default of all."""
    return tuple(
        dict.fromkeys(message for stack in find_stacks(assembly, patterns) for message in _list_messages(stack))
    )


def require_no_errors(assembly: Path, patterns: Sequence[str] = ()) -> tuple[Message, ...]:
    """
    Return the warnings of stacks; by default of all.

    Raises:
        AssemblyError: The app attached errors to its constructs, with which `cdk deploy` deploys nothing.
    """
    messages = read_messages(assembly, patterns)
    if errors := [message for message in messages if message.type == ERROR]:
        listing = "\n".join(f"  {error}" for error in errors)
        raise AssemblyError(
            f"the app reports {len(errors)} errors, with which `cdk deploy` deploys nothing:\n{listing}"
        )
    return messages


def _describe_lack(assembly: Path) -> str:
    if not assembly.exists():
        return "which does not exist"
    if not assembly.is_dir():
        return "which is no folder"
    return "" if (assembly / MANIFEST).is_file() else f"which has no {MANIFEST}"


def _list_stacks(assembly: Path) -> Iterator[StackArtifact]:
    """Yield the stacks, those of nested assemblies where their entry is."""
    artifacts = read_manifest(assembly)["artifacts"]
    for key, entry in artifacts.items():
        if entry.get("type") == STACK:
            yield StackArtifact(assembly, key, entry, artifacts)
        elif entry.get("type") == NESTED:
            yield from _list_stacks(assembly / entry["properties"]["directoryName"])


def _list_messages(stack: StackArtifact) -> Iterator[Message]:
    for path, kind, data in stack.list_metadata():
        if kind in (WARNING, ERROR):
            yield Message(kind, path, " ".join(data.split()))
