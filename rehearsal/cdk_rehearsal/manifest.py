"""Files of a cloud assembly: its manifests, and the messages that the app left for who deploys it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import AssemblyError

MANIFEST = "manifest.json"
STACK, NESTED = "aws:cloudformation:stack", "cdk:cloud-assembly"
"""Types of artifacts: a stack, and the assembly of a Stage."""
WARNING, ERROR = "aws:cdk:warning", "aws:cdk:error"
"""Types of metadata that `Annotations` adds; the CDK CLI prints both, and deploys nothing with an error."""


@dataclass(frozen=True)
class Message:
    """A warning or an error that the app attached to a construct."""

    type: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


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


def read_messages(assembly: Path, stack: str | None) -> tuple[Message, ...]:
    """
    Return the warnings and errors of a stack, in the order of the manifest, each once; None for those of all stacks.

    A stack of a Stage is in a nested assembly, and has a path as its name, such as `Prod/training`.
    """
    found = (
        message
        for folder, name, artifact in _list_stacks(assembly)
        if stack in (None, name, artifact.get("displayName"), artifact["properties"].get("stackName"))
        for message in _list_messages(folder, artifact)
    )
    return tuple(dict.fromkeys(found))


def require_no_errors(assembly: Path, stack: str | None) -> tuple[Message, ...]:
    """
    Return the warnings of a stack.

    Raises:
        AssemblyError: The app attached errors to its constructs, with which `cdk deploy` deploys nothing.
    """
    messages = read_messages(assembly, stack)
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


def _list_stacks(assembly: Path) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """Yield folder, name and entry of each stack, those of nested assemblies where their entry is."""
    for name, artifact in read_manifest(assembly)["artifacts"].items():
        if artifact.get("type") == STACK:
            yield assembly, name, artifact
        elif artifact.get("type") == NESTED:
            yield from _list_stacks(assembly / artifact["properties"]["directoryName"])


def _list_messages(folder: Path, artifact: Mapping[str, Any]) -> Iterator[Message]:
    """Yield the messages of a stack; the CDK writes its metadata into the manifest or, lately, a file of its own."""
    file = artifact.get("additionalMetadataFile")
    for metadata in (artifact.get("metadata", {}), read_object(folder / file) if file else {}):
        for path, entries in metadata.items():
            for entry in entries:
                if entry["type"] in (WARNING, ERROR):
                    yield Message(entry["type"], path, " ".join(str(entry["data"]).split()))
