"""Gives data its place by one rename, and says that it is whole; a crash at any moment is gone on from."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeplearning_contract.document import ContractError, parse_object
from deeplearning_contract.setting_parts import DataSettings
from deeplearning_node.atomic_file import write_file
from deeplearning_provision.data.target import Place
from deeplearning_provision.data.workspace import has_workspace, remove_workspaces
from deeplearning_provision.disk import remove_tree, sync_disk
from deeplearning_provision.steps import ProvisionFailure

MARKER = "complete.json"
INTENT = "publishing.json"
REFUSAL = "refused.json"
TROUBLE = "trouble.json"
_FETCHED = {".part", ".journal"}


def describe_source(source: DataSettings) -> dict[str, str]:
    """Return what a marker says of the source, as the settings name it."""
    return {"bucket": source.bucket, "key": source.key, "sha256": source.sha256}


def read_note(place: Place, name: str) -> Mapping[str, Any]:
    """Return a note that lies beside the data; empty when there is none."""
    try:
        return parse_object((place.staging / name).read_text(encoding="utf-8"), name)
    except (OSError, ContractError):
        return {}


def write_note(place: Place, name: str, note: Mapping[str, Any]) -> None:
    """Write a note beside the data, whole or not at all."""
    write_file(place.staging / name, json.dumps(note, indent=2) + "\n")


def remove_note(place: Place, name: str) -> None:
    """Remove a note, if it is there."""
    (place.staging / name).unlink(missing_ok=True)


def is_complete(place: Place, digest: str) -> bool:
    """Tell whether just this content is in its place."""
    return read_note(place, MARKER).get("digest") == digest and place.target.is_dir()


def check_ownership(place: Place) -> None:
    """
    Refuse to replace a folder that somebody else made.

    Raises:
        ProvisionFailure: It is in the data's place, and no note says that it was staged.
    """
    if _exists(place.target) and not read_note(place, MARKER) and not read_note(place, INTENT):
        raise ProvisionFailure(
            f"{place.target} must not exist before it is staged, and it was not staged",
            "move it away, or give the source another name",
        )


def publish(place: Place, incoming: Path, source: DataSettings, digest: str) -> None:
    """
    Make what came in the data.

    Effects: the target, its marker; the data of before is removed.

    Raises:
        OSError: The disk refuses, or another run took the folder over; the next call goes on.
    """
    sync_disk(incoming)
    identity = incoming.stat().st_ino
    note = {"digest": digest, **describe_source(source), "incoming": incoming.name, "inode": identity}
    write_note(place, INTENT, note)
    recover(place)
    if not is_complete(place, digest):
        raise FileNotFoundError(errno.ENOENT, "another run took it over", str(incoming))


def recover(place: Place) -> None:
    """
    Finish what `publish` began, in this run or in one that was interrupted.

    A folder keeps its inode when it is renamed: so it is known which one the intent means, wherever it is by now.
    """
    intent = read_note(place, INTENT)
    if not intent:
        return
    incoming = place.target.with_name(str(intent.get("incoming")))
    if _is_inode(incoming, intent):
        if _exists(place.target):
            remove_tree(place.replaced)
            place.target.rename(place.replaced)
        incoming.rename(place.target)
    elif not _is_inode(place.target, intent):  # Another run took the folder over.
        if _exists(place.replaced) and not _exists(place.target):
            place.replaced.rename(place.target)
        remove_note(place, INTENT)
        return
    sync_disk(place.target.parent)
    write_note(place, MARKER, {name: value for name, value in intent.items() if name not in {"incoming", "inode"}})
    remove_tree(place.replaced)
    remove_workspaces(place)
    _remove_fetched(place)  # The archive is not kept beside what it held.
    remove_note(place, INTENT)


def _is_inode(path: Path, intent: Mapping[str, Any]) -> bool:
    try:
        return path.lstat().st_ino == intent.get("inode")
    except FileNotFoundError:
        return False


def has_leftovers(place: Place) -> bool:
    """Tell whether something lies there that is not whole: of a content that the source had in between."""
    return has_workspace(place) or any(path.suffix in _FETCHED for path in place.staging.iterdir())


def discard(place: Place) -> None:
    """Remove everything of a source that is not whole."""
    remove_workspaces(place)
    _remove_fetched(place)


def _remove_fetched(place: Place) -> None:
    for path in place.staging.iterdir():
        if path.suffix in _FETCHED:
            path.unlink(missing_ok=True)


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()
