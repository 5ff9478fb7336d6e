"""The packages of a cluster's environment: found in its cloud assembly, downloaded by the host, served to the nodes."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_rehearsal.assembly import AssemblyStack, read_stack
from deeplearning_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.lab.downloads import prepare_packages
from deeplearning_rehearsal.lab.package_index import PackageIndex

_PORT = 3141
_SETTINGS_KEY = '"environment":'
_MENTION = json.dumps(_SETTINGS_KEY)[1:-1]
"""The same in the text of a template, where user data is a string."""


def find_environment(stack: AssemblyStack) -> EnvironmentSettings | None:
    """Return the environment that the settings in the nodes' user data ask for; None for the image's own."""
    for resource in stack.template["Resources"].values():
        if resource["Type"] == "AWS::EC2::LaunchTemplate":
            text = _read_literals(resource["Properties"]["LaunchTemplateData"].get("UserData", ""))
            if _SETTINGS_KEY in text:
                start = text.index(_SETTINGS_KEY) + len(_SETTINGS_KEY)
                return EnvironmentSettings.from_document(json.JSONDecoder().raw_decode(text, start)[0])
    return None


def prepare_job_packages(
    assembly: Path, stack_name: str | None, cache: Path, tell: Callable[[str], None]
) -> Path | None:
    """
    Return a folder with the packages of the stack's environment; they are downloaded when the cache has them not.

    Args:
        assembly: The cloud assembly.
        stack_name: Name of its stack. None: the only one.
        cache: Folder that keeps downloads.
        tell: Told a line for every slow step.

    Returns:
        None for a stack without an environment, which downloads nothing.

    Raises:
        UnavailableError: The nodes of the rehearsal could not make such an environment.
    """
    if not any(_MENTION in path.read_text(encoding="utf-8") for path in assembly.glob("*.template.json")):
        return None
    stack = read_stack(assembly, stack_name)
    environment = find_environment(stack)
    if environment is None:
        return None
    if environment.kind != "requirements" or environment.file is None:
        raise UnavailableError(
            f"environment must be a requirements file in the rehearsal, got {environment.kind}; "
            "its nodes have neither conda nor containers"
        )
    digest = environment.file.sha256
    for asset in stack.assets:
        if asset.packaging == "file" and hashlib.sha256(asset.path.read_bytes()).hexdigest() == digest:
            return prepare_packages(cache, asset.path, environment.horovod, tell)
    raise UnavailableError(f"environment must be an asset of the assembly, got SHA-256 {digest}; synthesize again")


def package_index_url(address: str) -> str:
    """Return the URL of the index for pip, which is served at an address from `serve_packages` on."""
    return f"http://{address}:{_PORT}/simple/"


@contextmanager
def serve_packages(address: str, folder: Path | None) -> Iterator[None]:
    """
    Serve the packages of a folder to the nodes; without one nothing is served.

    Args:
        address: Where nodes reach this process.
        folder: Of `prepare_job_packages`.
    """
    if folder is None:
        yield
        return
    with PackageIndex(address, _PORT, folder):
        yield


def _read_literals(value: Any) -> str:
    """Return the text of an intrinsic; what is known at deployment only is left out."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and "Fn::Base64" in value:
        return _read_literals(value["Fn::Base64"])
    if isinstance(value, dict) and "Fn::Join" in value:
        return "".join(part for part in value["Fn::Join"][1] if isinstance(part, str))
    return ""
