"""Gives data its place by one rename, and says that it is whole; a crash at any moment is gone on from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeplearning_agent.atomic_file import write_file
from deeplearning_contract.document import parse_object
from deeplearning_contract.errors import ContractError
from deeplearning_contract.setting_parts import DataSettings
from deeplearning_provision.disk import remove_tree, sync_disk
from deeplearning_provision.place import Place
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


def publish(place: Place, source: DataSettings, digest: str) -> None:
    """
    Make what came in the data.

    Effects: the target, its marker; the data of before is removed.

    Raises:
        OSError: The disk refuses; the next call goes on.
    """
    sync_disk(place.incoming)
    write_note(place, INTENT, {"digest": digest, **describe_source(source)})
    recover(place)


def recover(place: Place) -> None:
    """Finish what `publish` began, in this run or in one that was interrupted."""
    intent = read_note(place, INTENT)
    if not intent:
        return
    if place.incoming.is_dir():
        if _exists(place.target):
            remove_tree(place.replaced)
            place.target.rename(place.replaced)
        place.incoming.rename(place.target)
    elif not _exists(place.target):  # Somebody removed both: there is nothing to finish.
        remove_note(place, MARKER)
        remove_note(place, INTENT)
        return
    sync_disk(place.target.parent)
    write_note(place, MARKER, intent)
    remove_tree(place.replaced)
    _remove_fetched(place)  # The archive is not kept beside what it held.
    remove_note(place, INTENT)


def has_leftovers(place: Place) -> bool:
    """Tell whether something lies there that is not whole: of a content that the source had in between."""
    return place.incoming.is_dir() or any(path.suffix in _FETCHED for path in place.staging.iterdir())


def discard(place: Place) -> None:
    """Remove everything of a source that is not whole."""
    remove_tree(place.incoming)
    _remove_fetched(place)


def _remove_fetched(place: Place) -> None:
    for path in place.staging.iterdir():
        if path.suffix in _FETCHED:
            path.unlink(missing_ok=True)


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()
