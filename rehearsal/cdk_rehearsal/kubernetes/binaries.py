"""Release binaries of Kubernetes, from the user's folder or the cache; nothing is downloaded here."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cdk_rehearsal.errors import UnavailableError

VARIABLE = "KUBERNETES_BINARIES"
PROGRAMS = ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "etcd")
_KUBERNETES = PROGRAMS[:-1]
_VERSION = re.compile(r"Kubernetes v(([0-9]+\.[0-9]+)\.[^\s]+)")
_SECONDS = 60


@dataclass(frozen=True)
class Binaries:
    """
    Programs of a control plane.

    Attributes:
        folder: Where they are.
        version: Their version, such as `1.35.2`.
    """

    folder: Path
    version: str


def find_binaries(version: str, cache: Path, environment: Mapping[str, str] = os.environ) -> Binaries | None:
    """
    Return the programs that a rehearsal uses; None where there are none.

    Args:
        version: Minor version of the stack, such as `1.35`.
        cache: Folder of the user's caches, in which `kubernetes-<version>` may have them.
        environment: Variables; `KUBERNETES_BINARIES` names a folder.

    Raises:
        UnavailableError: A program is missing, cannot run, or is of another minor version.
    """
    named = environment.get(VARIABLE, "")
    folder = Path(named) if named else cache / f"kubernetes-{version}"
    if not named and not folder.is_dir():
        return None
    remedy = f"leave {VARIABLE} out for the stand-in" if named else f"remove {folder}"
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK) or (folder / name).is_dir()]
    if missing:
        raise UnavailableError(
            f"{VARIABLE} must have {', '.join(PROGRAMS)}, got {folder} without {', '.join(missing)}; "
            f"add them, or {remedy}"
        )
    found = {name: _read_version(folder / name) for name in _KUBERNETES}
    for name, (_, minor) in found.items():
        if minor != version:
            shown = minor or "an unknown version"
            raise UnavailableError(
                f"{VARIABLE} must have Kubernetes {version}, which is the stack's version, got {shown} of "
                f"{folder / name}; set the stack's version, or {remedy}"
            )
    return Binaries(folder.resolve(), found[PROGRAMS[0]][0])


def _read_version(program: Path) -> tuple[str, str]:
    """Return the version of a program and its minor version; both empty where it does not say them."""
    try:
        command = [str(program), "--version"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    match = _VERSION.search(answer.stdout)
    return (match[1], match[2]) if match else ("", "")
