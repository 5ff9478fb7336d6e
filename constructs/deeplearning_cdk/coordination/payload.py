"""
Programs of the nodes and Lambda functions, packed so that the same sources always produce the same bytes.

In a wheel the sources are package data beside this module; in a checkout they are the source folders.
"""

import atexit
import hashlib
import importlib.util
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import deeplearning_contract
from deeplearning_contract.settings import NodeSettings

_INSTALLED = Path(__file__).parents[1] / "_payload"
_CHECKOUT = Path(__file__).parents[3]
_CONTRACT = Path(deeplearning_contract.__file__).parent
NODE_PACKAGES = (
    "deeplearning_agent",
    "deeplearning_command",
    "deeplearning_jobs",
    "deeplearning_member",
    "deeplearning_node",
    "deeplearning_provision",
)
_FOLDERS = {
    "vendor": "build",
    "capacity_adjuster": "lambda",
    "image_pin": "lambda",
    "mask_rcnn": "examples",
    "sagemaker": "examples",
}
"""Folder of a checkout with a payload, where it is not `userdata`."""
COMMAND_PACKAGES = ("cdk_rehearsal", "deeplearning_cli", "deeplearning_view")
"""Packages of the command that submits jobs, beside the contract."""
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)
"""Earliest date of the zip format; the real date would change the bytes."""


@dataclass(frozen=True)
class Archive:
    """Local zip file, with the SHA-256 of its bytes in hex."""

    path: str
    sha256: str


def find_payload(name: str) -> Path:
    """
    Find a file or folder by its name.

    A name is `vendor`, `capacity_adjuster`, `image_pin`, a package of nodes, a file of `userdata`, or a folder of
    examples.

    Raises:
        ValueError: It does not exist.
    """
    folder = _FOLDERS.get(name, "userdata")
    path = _INSTALLED / name if _INSTALLED.is_dir() else _CHECKOUT / folder / name
    if not path.exists():
        raise ValueError(f"payload must be complete, got no {path}; run `make setup` in a checkout")
    return path


@cache
def pack_agent() -> Archive:
    """Pack the programs of nodes, the contract and their boto3; the archive's root is an import path."""
    return _pack("agent.zip", _list_programs())


def pack_member(settings: NodeSettings) -> str:
    """Pack the programs of nodes with the settings of a member, which contain no tokens; return the zip's path."""
    text = json.dumps(settings.to_document(), indent=2, sort_keys=True) + "\n"
    file = keep_folder({"settings.json": text.encode()}) / "settings.json"
    return keep_file("member.zip", zip_bytes([*_list_programs(), file]))


@cache
def pack_adjuster() -> Archive:
    """Pack the capacity adjuster and the contract."""
    return _pack("adjuster.zip", [find_payload("capacity_adjuster"), _CONTRACT])


@cache
def pack_image_pin() -> Archive:
    """Pack the function that pins the image, and the contract."""
    return _pack("image-pin.zip", [find_payload("image_pin"), _CONTRACT])


def pack_notebook() -> str:
    """Pack the command, the list of its packages, and the examples of a notebook; return the zip's path."""
    specs = [importlib.util.find_spec(name) for name in COMMAND_PACKAGES]
    packages = [Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()]
    # The notebook alone, since whoever runs it in a checkout has files of jobs beside it.
    notebook = (find_payload("sagemaker") / "mask_rcnn.ipynb").read_bytes()
    examples = [find_payload("mask_rcnn"), keep_folder({"sagemaker/mask_rcnn.ipynb": notebook}) / "sagemaker"]
    return keep_file("notebook.zip", zip_bytes([*packages, _CONTRACT, find_payload("notebook.lock"), *examples]))


def keep_file(name: str, content: bytes) -> str:
    """
    Write a temporary file that the CDK copies as an asset at synthesis, and return its path.

    Its name is the SHA-256 of its content and `name`; it is deleted when the process ends.
    """
    path = _scratch() / f"{hashlib.sha256(content).hexdigest()}-{name}"
    path.write_bytes(content)
    return str(path)


def keep_folder(files: Mapping[str, bytes]) -> Path:
    """Write a temporary folder of files, path -> content, as `keep_file` writes one."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    folder = _scratch() / digest.hexdigest()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def zip_bytes(sources: list[Path]) -> bytes:
    """
    Return a zip of files and folders, each under its own name at the root.

    Names are sorted, dates and modes are fixed, and nothing is compressed, because zlib's output differs between
    its versions. Compiled files are left out.
    """
    buffer = io.BytesIO()
    entries = sorted((name, path) for source in sources for name, path in _walk(source))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, path in entries:
            info = zipfile.ZipInfo(name, _FIRST_DATE)
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, path.read_bytes())
    return buffer.getvalue()


def _list_programs() -> list[Path]:
    packages = [find_payload(name) for name in NODE_PACKAGES]
    return [*packages, _CONTRACT, *sorted(find_payload("vendor").iterdir())]


def _walk(source: Path) -> Iterator[tuple[str, Path]]:
    for path in [source] if source.is_file() else source.rglob("*"):
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts:
            yield path.relative_to(source.parent).as_posix(), path


def _pack(name: str, sources: list[Path]) -> Archive:
    content = zip_bytes(sources)
    path = _scratch() / name
    path.write_bytes(content)
    return Archive(str(path), hashlib.sha256(content).hexdigest())


@cache
def _scratch() -> Path:
    """Create the temporary folder of the archives, which is deleted when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="deeplearning-cdk-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
