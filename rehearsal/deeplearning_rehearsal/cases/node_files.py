"""The files of a node as digests, to tell whether a reboot or a second run of user data changed any."""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

FOLDERS = ("etc", "home", "opt/deeplearning")
"""Folders that a node's set-up and its membership write to."""
_BROUGHT = tuple(f"opt/deeplearning/{name}" for name in ("data", "environments", "provision"))
"""Data and environments, which nodes copy at any time, and their status file, which names the boot."""

_VOLATILE_SUFFIXES = (".pyc", "~")
_VOLATILE_NAMES = frozenset({"ld.so.cache", "mtab"})


class NodeFiles:
    """
    Remembers the files of nodes and compares them; `changes` maps instance ids to changed paths after the comparison.
    """

    def __init__(self, disk: Callable[[str], Path]) -> None:
        self._disk = disk
        self._before: dict[str, Mapping[str, str]] = {}
        self.changes: Mapping[str, tuple[str, ...]] = {}

    def remember(self, instance_id: str) -> None:
        """Remember a node's files as they are, unless they were remembered before."""
        if instance_id not in self._before:
            self._before[instance_id] = digest_files(self._disk(instance_id))

    def compare(self) -> None:
        """Find, for each node remembered, the paths that were added, removed or changed since."""
        self.changes = {name: _compare(old, digest_files(self._disk(name))) for name, old in self._before.items()}


def digest_files(root: Path) -> dict[str, str]:
    """Return path -> mode, owner and digest of every file of a node's set-up."""
    found = {}
    for folder in FOLDERS:
        for parent, folders, names in os.walk(root / folder):
            folders[:] = [name for name in folders if str(Path(parent, name).relative_to(root)) not in _BROUGHT]
            for name in names:
                path = Path(parent, name)
                if not name.endswith(_VOLATILE_SUFFIXES) and name not in _VOLATILE_NAMES:
                    found[str(path.relative_to(root))] = _describe(path)
    return found


def _describe(path: Path) -> str:
    status = path.lstat()
    facts = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"
    if path.is_symlink():
        return f"{facts} -> {path.readlink()}"
    return f"{facts} {hashlib.sha256(path.read_bytes()).hexdigest()}" if path.is_file() else facts


def _compare(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(path for path in sorted({*before, *after}) if before.get(path) != after.get(path))
