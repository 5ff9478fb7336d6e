"""The folder in which a source becomes whole: one at a time owns it, and who lost it can write nothing more to it."""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deeplearning_provision.data.target import Place
from deeplearning_provision.disk import remove_tree
from deeplearning_provision.resume_journal import Journal


@dataclass(frozen=True)
class Workspace:
    """
    A folder that is being filled, and what of it is finished.

    Its name is `.<source>.extracting.<generation>.<owner>`. A run takes a folder over by renaming it: from then on
    every path that another run still has in mind leads nowhere, also the one that it would publish. A folder that is
    begun anew has a new generation, which is part of its journal's name: what was noted of another folder counts not.
    """

    path: Path
    journal: Journal


def has_progress(place: Place, kind: str) -> bool:
    """Tell whether an earlier run filled a part of such a folder."""
    return any(any(_journal(place, kind, path).read()) for path in _find(place))


def read_progress(place: Place, kind: str) -> set[str]:
    """Return what earlier runs finished; `kind` may hold a `*` for other contents of which files may be kept."""
    return {line for path in _find(place) for line in _journal(place, kind, path).read()}


def claim_workspace(place: Place, kind: str) -> Workspace:
    """
    Take the folder of this kind over, or begin an empty one.

    Effects: all other folders and journals of the source are removed.

    Args:
        place: Of the source.
        kind: What the folder is filled with: names the content.
    """
    claimed = None
    for path in _find(place):
        if claimed is None and any(_journal(place, kind, path).read()):
            claimed = _take(place, path, _generation(path))
    if claimed is None:
        claimed = _name(place, secrets.token_hex(4))
        claimed.mkdir()
    _clean(place, claimed)
    return Workspace(claimed, _journal(place, kind, claimed))


def adopt_workspace(place: Place, kind: str, others: str) -> tuple[Workspace, set[str]] | None:
    """
    Take a folder over that was filled with another content, to keep of it what both have.

    Args:
        place: Of the source.
        kind: Of the present content.
        others: Of the contents that may be adopted; holds a `*`.

    Returns:
        The folder under a new generation, whose journal is empty, and what was finished; None when there is none.
    """
    for path in _find(place):
        finished = set(_journal(place, others, path).read())
        if finished and (claimed := _take(place, path, secrets.token_hex(4))):
            _clean(place, claimed)
            return Workspace(claimed, _journal(place, kind, claimed)), finished
    return None


def remove_workspaces(place: Place) -> None:
    """Remove every folder of the source that is not whole, and the journals."""
    _clean(place, None)


def has_workspace(place: Place) -> bool:
    """Tell whether there is a folder that is not whole."""
    return any(_find(place))


def _find(place: Place) -> Iterator[Path]:
    return iter(sorted(place.target.parent.glob(f".{place.name}.extracting.*.*")))


def _name(place: Place, generation: str) -> Path:
    return place.target.with_name(f".{place.name}.extracting.{generation}.{secrets.token_hex(4)}")


def _generation(path: Path) -> str:
    return path.name.split(".")[-2]


def _journal(place: Place, kind: str, path: Path) -> Journal:
    return Journal(place.staging, f"{kind}-{_generation(path)}")


def _take(place: Place, path: Path, generation: str) -> Path | None:
    mine = _name(place, generation)
    try:
        path.rename(mine)
    except FileNotFoundError:  # Another run was first.
        return None
    return mine


def _clean(place: Place, kept: Path | None) -> None:
    """Remove other folders: each under a new name first, so that nobody publishes what is half removed."""
    for path in [path for path in _find(place) if path != kept]:
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_name(f".{place.name}.removed.{secrets.token_hex(4)}"))
    for path in place.target.parent.glob(f".{place.name}.removed.*"):
        remove_tree(path)
    generation = f"-{_generation(kept)}." if kept else "\0"
    for family in ("members", "files"):
        for journal in place.staging.glob(f"{family}-*.journal"):
            if generation not in journal.name:
                journal.unlink(missing_ok=True)
