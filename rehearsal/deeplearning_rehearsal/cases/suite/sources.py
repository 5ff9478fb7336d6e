"""A digest of what a rehearsal depends on: while it stays the same, a case that passed need not be repeated."""

import hashlib
import importlib.util
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

from deeplearning_rehearsal.cases import catalogue

PACKAGES = (
    "capacity_adjuster",
    "cdk_rehearsal",
    "deeplearning_agent",
    "deeplearning_cdk",
    "deeplearning_cli",
    "deeplearning_command",
    "deeplearning_contract",
    "deeplearning_jobs",
    "deeplearning_member",
    "deeplearning_node",
    "deeplearning_provision",
    "deeplearning_rehearsal",
    "deeplearning_view",
    "image_pin",
)
"""The project's own; what nodes and functions run is part of deeplearning_cdk in a wheel, and a package elsewhere."""
CASES = Path(catalogue.__file__).parent.resolve()
_READ_BY_NO_APP = frozenset({"build", "cdk.out", "docs", "node_modules", "tests", "__pycache__"})
_TEXT = (".py", ".json", ".toml", ".lock", ".txt", ".sh", ".yaml", ".yml", ".cfg")


def digest_sources(folder: Path, out: Path, words: Sequence[str]) -> str:
    """
    Digest the project's packages, the files of the app's folder, this Python, and further `words` that decide.

    Files of the app count when a program may read them: Python, JSON, TOML, YAML, shell, locks and texts, whether git
    knows them or not. Hidden folders, virtual environments, `build`, `cdk.out`, `docs`, `node_modules`, `tests` and the
    folder of reports, `out`, do not. Nor do the files of the catalogue, see `digest_case`.
    """
    found = hashlib.sha256(repr((platform.python_version(), *words)).encode())
    own = [path for name in PACKAGES for path in _find_package(name)]
    theirs = [path for path in _walk(folder, out.resolve()) if path.suffix in _TEXT]
    for path in sorted({path.resolve() for path in (*own, *theirs)}):
        if path.parent != CASES:
            found.update(f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def digest_case(sources: str, file: Path) -> str:
    """Digest a case: the sources, and its own file."""
    return hashlib.sha256(sources.encode() + file.read_bytes()).hexdigest()[:24]


def _find_package(name: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(name)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from _walk(Path(folder), None)


def _walk(folder: Path, out: Path | None) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _is_source(Path(place, name), out)]
        yield from (Path(place, name) for name in files)


def _is_source(folder: Path, out: Path | None) -> bool:
    if folder.name in _READ_BY_NO_APP or folder.name.startswith(".") or (folder / "pyvenv.cfg").exists():
        return False
    return out is None or folder.resolve() != out
