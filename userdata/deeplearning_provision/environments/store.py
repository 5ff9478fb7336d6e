"""
Store of finished environments: a folder on the shared file system, and one on each node.

| name | content |
|---|---|
| `<recipe>.json` | key of a recipe's environment, which saves another run of pip |
| `<key>/complete.json` | manifest; an environment without it is incomplete |
| `<key>/environment.tar` | on the shared file system: the archive that every node unpacks |
| `<key>/` | on a node: the environment itself |
"""

import contextlib
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deeplearning_contract.document import ContractError, parse_record
from deeplearning_node.atomic_file import write_file
from deeplearning_provision.disk import remove_tree
from deeplearning_provision.environments.archive import Archive

COMPLETE = "complete.json"
ARCHIVE = "environment.tar"


@dataclass(frozen=True)
class Manifest:
    """Description of a finished environment."""

    key: str
    recipe: Mapping[str, Any]
    packages: tuple[str, ...]  # Installed by pip, each with its version
    built_by: str  # Instance id
    seconds: float  # Duration of the build
    horovod: Mapping[str, Any] = field(default_factory=dict)  # Plan of Horovod's build; empty without Horovod
    archive: Archive | None = None  # None before it is packed

    def to_text(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_text(cls, text: str) -> "Manifest":
        return parse_record(cls, text, COMPLETE)

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """Return a folder's manifest; None for an incomplete environment, or one of another version of this code."""
        try:
            return cls.from_text((folder / COMPLETE).read_text(encoding="utf-8"))
        except (OSError, ContractError):
            return None

    def write(self, folder: Path) -> None:
        """Complete an environment's folder."""
        write_file(folder / COMPLETE, self.to_text())

    def describe(self) -> str:
        count = len(self.packages)
        text = f"{count} package{'' if count == 1 else 's'}"
        if self.horovod:
            frameworks = ", ".join(f"{name} {version}" for name, version in self.horovod["frameworks"].items())
            text = f"Horovod {self.horovod['version']} for {frameworks}, {text}"
            text += "".join(f", not for {name}: {why}" for name, why in self.horovod["skipped"].items())
        return text


@dataclass(frozen=True)
class Memo:
    """Key of a recipe's environment; with a boot, valid until that boot ends."""

    key: str
    boot: str = ""

    def to_text(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def write_memo(folder: Path, recipe: str, key: str, boot: str = "") -> None:
    write_file(folder / f"{recipe}.json", Memo(key, boot).to_text())


def read_memo(text: str, boot: str = "") -> str:
    """Return the key of a memo; empty when the text is no memo, or of another boot."""
    try:
        memo = parse_record(Memo, text, "memo")
    except ContractError:
        return ""
    return memo.key if memo.boot in ("", boot) and "/" not in memo.key else ""


def find_key(folder: Path, recipe: str, boot: str = "") -> str:
    """Return the key of a recipe's environment; empty when the folder has no memo of it."""
    try:
        return read_memo((folder / f"{recipe}.json").read_text(encoding="utf-8"), boot)
    except (OSError, UnicodeError):
        return ""


def find_installed(folder: Path, recipe: str, boot: str) -> Manifest | None:
    key = find_key(folder, recipe, boot)
    return Manifest.read(folder / key) if key else None


def find_kept(folder: Path, key: str) -> Manifest | None:
    """Return the archived environment of a key in the shared folder; None when it is missing or truncated."""
    manifest = Manifest.read(folder / key) if key else None
    if manifest is None or manifest.archive is None:
        return None
    try:
        size = (folder / key / ARCHIVE).stat().st_size
    except OSError:
        return None
    return manifest if size == manifest.archive.size else None


def publish(making: Path, folder: Path, manifest: Manifest) -> None:
    """Rename the folder of a new archive to its key; an equal one that another node published first is kept."""
    manifest.write(making)
    if not find_kept(folder, manifest.key):
        discard(folder / manifest.key)
    try:
        making.rename(folder / manifest.key)
    except OSError:
        if find_kept(folder, manifest.key) is None:
            raise


def discard(folder: Path) -> None:
    """Rename an environment, if it exists, then remove it: no reader sees a partial one."""
    aside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.removed")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
        remove_tree(aside)


@contextlib.contextmanager
def hold_place(folder: Path, key: str, owner: str) -> Iterator[Path]:
    """
    Yield the path of a folder to create and rename; remove it at the end if it was not renamed.

    Leftovers of this node's interrupted processes are removed first.
    """
    for pattern in (f".*.making-{owner}", ".*.removed"):
        for path in folder.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)
    place = folder / f".{key}.making-{owner}"
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
