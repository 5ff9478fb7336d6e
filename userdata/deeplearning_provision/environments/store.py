"""
A folder of finished environments: on the shared file system, and on each node.

| name | what |
|---|---|
| `<recipe>.json` | which key a recipe led to: with it pip need not be asked again |
| `<key>/complete.json` | what the environment is; it is whole when this is there |
| `<key>/environment.tar` | on the shared file system: the archive that every node unpacks |
| `<key>/` | on a node: the environment itself |
"""

import contextlib
import json
import os
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
    """What a finished environment is."""

    key: str
    recipe: Mapping[str, Any]  # What it was made from
    packages: tuple[str, ...]  # What pip put into it, each with its version
    built_by: str  # Instance that made it
    seconds: float  # What that took
    horovod: Mapping[str, Any] = field(default_factory=dict)  # How Horovod was built; empty without it
    archive: Archive | None = None  # Of it; None for one that has not been packed yet

    def to_text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_text(cls, text: str) -> "Manifest":
        """Read a manifest that `to_text` wrote; ContractError for any other text."""
        return parse_record(cls, text, COMPLETE)

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """Return that of an environment's folder; None when it is not whole, or from another version of this code."""
        try:
            return cls.from_text((folder / COMPLETE).read_text(encoding="utf-8"))
        except (OSError, ContractError):
            return None

    def write(self, folder: Path) -> None:
        """Write it into an environment's folder, which is whole then."""
        write_file(folder / COMPLETE, self.to_text())

    def describe(self) -> str:
        """Return what is in it, in a few words."""
        count = len(self.packages)
        text = f"{count} package{'' if count == 1 else 's'}"
        if self.horovod:
            frameworks = ", ".join(f"{name} {version}" for name, version in self.horovod["frameworks"].items())
            text = f"Horovod {self.horovod['version']} for {frameworks}, {text}"
            text += "".join(f", not for {name}: {why}" for name, why in self.horovod["skipped"].items())
        return text


@dataclass(frozen=True)
class Memo:
    """A note of the key that a recipe led to; with a boot, until that boot ends."""

    key: str
    boot: str = ""

    def to_text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self)) + "\n"


def write_memo(folder: Path, recipe: str, key: str, boot: str = "") -> None:
    """Record the key that a recipe's digest led to; with a boot, until that boot ends."""
    write_file(folder / f"{recipe}.json", Memo(key, boot).to_text())


def read_memo(text: str, boot: str = "") -> str:
    """Return the key that a note names; empty when it is none, or of another boot."""
    try:
        memo = parse_record(Memo, text, "memo")
    except ContractError:
        return ""
    return memo.key if memo.boot in ("", boot) and "/" not in memo.key else ""


def find_key(folder: Path, recipe: str, boot: str = "") -> str:
    """Return the key that a recipe led to, as far as this folder knows; empty when it does not."""
    try:
        return read_memo((folder / f"{recipe}.json").read_text(encoding="utf-8"), boot)
    except (OSError, UnicodeError):
        return ""


def find_installed(folder: Path, recipe: str, boot: str) -> Manifest | None:
    """Return the environment of a recipe that a node has; None when it has none."""
    key = find_key(folder, recipe, boot)
    return Manifest.read(folder / key) if key else None


def find_kept(folder: Path, key: str) -> Manifest | None:
    """Return the archived environment of a key in the shared folder; None when it is not there, or was cut off."""
    manifest = Manifest.read(folder / key) if key else None
    if manifest is None or manifest.archive is None:
        return None
    try:
        size = (folder / key / ARCHIVE).stat().st_size
    except OSError:
        return None
    return manifest if size == manifest.archive.size else None


def publish(making: Path, folder: Path, manifest: Manifest) -> Manifest:
    """Give an archive's folder its name, and return the manifest that is there: of two equal ones the first wins."""
    manifest.write(making)
    if not find_kept(folder, manifest.key):
        discard(folder / manifest.key)
    try:
        making.rename(folder / manifest.key)
    except OSError:
        if (found := find_kept(folder, manifest.key)) is None:
            raise
        return found
    return manifest


def discard(folder: Path) -> None:
    """Remove an environment: under another name first, so that it is never there in part."""
    if not os.path.lexists(folder):
        return
    aside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.removed")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
        remove_tree(aside)


@contextlib.contextmanager
def hold_place(folder: Path, key: str, owner: str) -> Iterator[Path]:
    """
    Reserve a place where a node makes what will be an environment's folder; it is empty before and after.

    What an interrupted process of this node left in the folder is removed.
    """
    for pattern in (f".*.making-{owner}", ".*.removed"):
        for path in folder.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)
    place = folder / f".{key}.making-{owner}"
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
