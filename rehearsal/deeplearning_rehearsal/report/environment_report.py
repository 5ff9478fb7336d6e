"""The part of the report that is about the environment of jobs: which one was used, and where its parts came from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeplearning_contract.names import ENVIRONMENT_DIRECTORY, PROVISION_FILE

_HISTORY = "var/log/apt/history.log"
_COMPILER = "g++"
_STEP = "environment"


@dataclass(frozen=True)
class EnvironmentReport:
    """
    The environment that jobs ran in; keys are added, never renamed.

    Attributes:
        state: `kept`: an earlier rehearsal made it; `built`: a node of this one did; `image`: the nodes' image has all
            of it; else how far the master was with it: `waiting`, `running` or `failed`.
        key: Its name; empty where there is none.
        built_by: Instance that made it.
        build_seconds: What that took.
        detail: What the master says of it.
        origins: Part of it -> where that came from.
    """

    state: str
    key: str = ""
    built_by: str = ""
    build_seconds: float = 0.0
    detail: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)


def read_environment(disk: Path, brought: set[str]) -> EnvironmentReport:
    """
    Look at the environment of a node.

    Args:
        disk: The node's files.
        brought: Keys of the environments that were on the file system before the node booted.
    """
    steps = _read(disk / PROVISION_FILE.lstrip("/")).get("steps", {})
    step = steps.get(_STEP, {}) if isinstance(steps, dict) else {}
    state, detail = str(step.get("state", "waiting")), str(step.get("detail", ""))
    current = disk / ENVIRONMENT_DIRECTORY.lstrip("/") / "current"
    if state != "done" or not current.is_symlink():
        return EnvironmentReport("image" if state == "done" else state, detail=detail)
    key = current.readlink().name
    found = _read(current.parent / key / "complete.json")
    if not found:  # The link leads to the image's own Python, which nobody made.
        return EnvironmentReport("image", detail=detail)
    is_kept = key in brought
    return EnvironmentReport(
        "kept" if is_kept else "built",
        key,
        str(found.get("built_by", "")),
        float(found.get("seconds", 0.0)),
        detail,
        {} if is_kept else _find_origins(found, disk),
    )


def _find_origins(manifest: Mapping[str, Any], disk: Path) -> dict[str, str]:
    frameworks = manifest.get("recipe", {}).get("frameworks", {})
    origins = {f"{name} {version}": "the image" for name, version in frameworks.items()}
    packages = manifest.get("packages", ())
    if packages:
        origins[f"{len(packages)} packages ({', '.join(sorted(packages))})"] = "the package index"
    if horovod := manifest.get("horovod", {}):
        origins[f"Horovod {horovod.get('version', '')}"] = "its source, which a node compiled"
        history = disk / _HISTORY
        is_installed = history.is_file() and _COMPILER in history.read_text(encoding="utf-8", errors="replace").split()
        origins["its compiler"] = "the Debian archive" if is_installed else "the image"
    return origins


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
