"""
Finished environments of jobs, kept from one rehearsal to the next, as a shared file system that outlives its cluster.

What nodes made is copied out of the rehearsed file system when all went well, and into that of a later rehearsal before
its nodes boot. Copies both ways: nodes may do to theirs what they like.
"""

import hashlib
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdk_rehearsal.cache import fill_once, lock_cache, make_work_folder, require_cache
from cdk_rehearsal.errors import RehearsalError
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY
from deeplearning_contract.setting_parts import EnvironmentSettings

PLACE = Path(".deeplearning/environments")
"""Of environments, below the root of the shared file system and below the cache's own folder."""

_FOLDER = "environments"
_NOTE = re.compile(r"[0-9a-f]{24}\.json")
"""Notes of the environment that a recipe led to; the master's own, beside these, have the cluster's name."""

COMPLETE = "complete.json"
ARCHIVE = "environment.tar"
"""Files of an environment: its manifest, and what is in it."""


@dataclass
class KeptEnvironments:
    """
    The environments in the cache.

    Attributes:
        wanted: Environment of the rehearsed cluster; None for none, which takes and leaves nothing.
        is_fresh: Whether the cluster is to find nothing.
        brought: Keys of those that were put on file systems of this rehearsal.
    """

    cache: Path
    wanted: EnvironmentSettings | None
    report: Callable[[str], None]
    is_fresh: bool = False
    brought: set[str] = field(default_factory=set)
    _putting: threading.Lock = field(default_factory=threading.Lock)

    def put(self, roots: Sequence[Path]) -> None:
        """
        Copy what the cluster may use to file systems that have no environments yet; RehearsalError without room.

        Two of the folders, which nodes mount, may be of one file system.
        """
        kept = self.cache / _FOLDER / PLACE
        if self.wanted is None or self.is_fresh or not kept.is_dir():
            return
        # A node that boots beside another waits until all is there; other rehearsals read at the same time.
        with self._putting, lock_cache(self.cache, _FOLDER, self.report, is_shared=True):
            notes = self._choose(kept)
            for root in roots:
                if notes and not (root / PLACE).exists():
                    self._put(kept, root, notes)

    def keep(self, roots: Sequence[Path]) -> None:
        """
        Copy what nodes made to the cache, and forget there what no recipe leads to any more.

        That a cache takes nothing is logged, and is no fault of the cluster.
        """
        if self.wanted is None:
            return
        try:
            require_cache(self.cache)
            with lock_cache(self.cache, _FOLDER, self.report):
                for root in roots:
                    self._keep(root)
        except (OSError, RehearsalError, subprocess.CalledProcessError) as error:
            self.report(f"the environment could not be kept for later rehearsals: {error}")

    def list_damaged(self) -> Iterator[tuple[str, bytes]]:
        """
        Yield key and content of what a cache in a bucket would hold of what the cluster may use, each archive damaged.

        RehearsalError when none is kept, or the cluster has no cache.
        """
        cache = None if self.wanted is None else self.wanted.cache
        kept = self.cache / _FOLDER / PLACE
        notes = self._choose(kept)
        if cache is None or not notes:
            raise RehearsalError(
                "an environment of an earlier rehearsal must be kept before a cache can have it, got none; rehearse "
                "another case with the same environment first"
            )
        for key in sorted(set(notes.values())):
            archive = bytearray((kept / key / ARCHIVE).read_bytes())
            archive[len(archive) // 2] ^= 1
            digest = _read(kept / key / COMPLETE)["archive"]["sha256"]
            yield f"{cache.prefix}{key}/{digest}.tar", bytes(archive)
            yield f"{cache.prefix}{key}/{COMPLETE}", (kept / key / COMPLETE).read_bytes()
        for note in notes:
            yield f"{cache.prefix}{note.name}", note.read_bytes()

    def install(self) -> tuple[Path, ...]:
        """
        Return layers for disks on which what the cluster may use is installed, as after the first boot of a node.

        Each is unpacked once for all rehearsals.
        """
        kept = self.cache / _FOLDER / PLACE
        if self.wanted is None or not kept.is_dir():
            return ()
        with lock_cache(self.cache, _FOLDER, self.report, is_shared=True):
            found = self._choose(kept)
            keys = sorted(set(found.values()))
            return tuple(self._install(kept / key, [note for note in found if found[note] == key]) for key in keys)

    def _install(self, made: Path, notes: Sequence[Path]) -> Path:
        def unpack(work: Path) -> Path:
            layer = work / "layer"
            local = layer / ENVIRONMENT_DIRECTORY.lstrip("/")
            (local / made.name).mkdir(parents=True)
            command = ["tar", "-C", str(local / made.name), "-xf", str(made / ARCHIVE)]
            subprocess.run(command, check=True, capture_output=True)
            shutil.copy(made / COMPLETE, local / made.name)
            for note in notes:
                shutil.copy(note, local)
            return layer

        parts = ((made / COMPLETE).read_bytes(), *(note.name.encode() for note in notes))
        return fill_once(
            self.cache, f"installed-{hashlib.sha256(b' '.join(parts)).hexdigest()[:16]}", unpack, self.report
        )

    @contextmanager
    def open_archives(self, python: str) -> Iterator[list[Path]]:
        """Give the folders of what the cluster may use that a Python has made without MPI; none changes meanwhile."""
        kept = self.cache / _FOLDER / PLACE
        if self.wanted is None or not kept.is_dir():
            yield []
            return
        wanted = (python, False, self.wanted.horovod)
        with lock_cache(self.cache, _FOLDER, self.report, is_shared=True):
            folders = [kept / key for key in sorted(set(self._choose(kept).values()))]
            recipes = {folder: _read(folder / COMPLETE)["recipe"] for folder in folders}
            yield [
                folder
                for folder, recipe in recipes.items()
                if (recipe["python"].split(" ")[0], recipe["has_mpi"], recipe["horovod"]) == wanted
            ]

    def _choose(self, kept: Path) -> Mapping[Path, str]:
        """Return the notes that this cluster's nodes may look for: of what was declared, on whatever image."""
        if self.wanted is None:
            return {}
        sources = {"", self.wanted.framework}
        if self.wanted.file is not None:
            sources = {self.wanted.file.sha256}
        notes = {}
        for note, key in _read_notes(kept):
            recipe = _read(kept / key / COMPLETE).get("recipe", {})
            if recipe.get("kind") == self.wanted.kind and recipe.get("source") in sources:
                notes[note] = key
        return notes

    def _put(self, kept: Path, root: Path, notes: Mapping[Path, str]) -> None:
        # Nodes give an empty file system to the login user, and refuse one with files that is somebody else's.
        _own_like(self.cache / _FOLDER / PLACE.parent, root)
        for folder in (PLACE.parent, PLACE):
            _make_like(self.cache / _FOLDER / folder, root / folder)
        try:
            for path in (*sorted({kept / key for key in notes.values()}), *notes):
                _copy(path, root / PLACE / path.name)
        except subprocess.CalledProcessError as error:
            raise RehearsalError(f"kept environments could not be copied to the file system: {error.stderr}") from error
        self.brought |= set(notes.values())

    def _keep(self, root: Path) -> None:
        made, kept = root / PLACE, self.cache / _FOLDER / PLACE
        for note, key in _read_notes(made):
            for folder in (PLACE.parent, PLACE):
                _make_like(root / folder, self.cache / _FOLDER / folder)
            if _read_bytes(made / key / COMPLETE) != _read_bytes(kept / key / COMPLETE):
                with make_work_folder(self.cache, _FOLDER) as work:
                    _copy(made / key, work / key)
                    shutil.rmtree(kept / key, ignore_errors=True)
                    (work / key).rename(kept / key)
                self.report(f"keeps the environment {key} for later rehearsals")
            _copy(note, kept / note.name)
        used = {key for _, key in _read_notes(kept)}
        for folder in kept.iterdir() if kept.is_dir() else ():
            if folder.is_dir() and folder.name not in used:
                shutil.rmtree(folder)


def _read_notes(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the notes of a folder that lead to a whole environment, with its key."""
    for note in sorted(folder.iterdir()) if folder.is_dir() else ():
        key = _read(note).get("key") if _NOTE.fullmatch(note.name) else None
        if isinstance(key, str) and key and "/" not in key and (folder / key / COMPLETE).is_file():
            yield note, key


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(_read_bytes(path))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _make_like(model: Path, folder: Path) -> None:
    """Make a folder with the owner and the rights of another; parents are there."""
    if not folder.exists():
        folder.mkdir(parents=True)
        shutil.copymode(model, folder)
        _own_like(model, folder)


def _own_like(model: Path, folder: Path) -> None:
    status = model.stat()
    shutil.chown(folder, status.st_uid, status.st_gid)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder with owners, rights and times."""
    command = ["cp", "--archive", "--no-target-directory", str(source), str(target)]
    subprocess.run(command, check=True, capture_output=True, text=True)
