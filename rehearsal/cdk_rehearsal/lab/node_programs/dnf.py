"""
Stands in for dnf: installs what the image keeps for it, and Debian's compilers by their names in Amazon Linux.

Each Python has packages of its own, and `python3-devel` has the headers of 3.9 alone (AL2023 user guide, "Python in
AL2023").
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGES = Path("/usr/lib/lab/packages")
DEBIAN = {
    "gcc-c++": ("g++",),
    "make": ("make",),
    # The image hides the headers of a package that Debian takes to be installed.
    "python3.11-devel": ("python3.11-dev", "libpython3.11-dev"),
    "python3.11-pip": ("python3-pip", "python3.11-venv"),
}
"""Package of Amazon Linux -> packages of Debian."""
_FAILED = 1
_UPDATES = ("check-update", "makecache", "update", "upgrade")
_APT = ("env", "DEBIAN_FRONTEND=noninteractive", "apt")
_INSTALL = ("install", "--yes", "--quiet", "--no-install-recommends", "--reinstall")


def main(arguments: Sequence[str], packages: Path = PACKAGES, root: Path = Path("/"), apt: Sequence[str] = _APT) -> int:
    """
    Serve `dnf install --assumeyes PACKAGE...` and `dnf update`; return 0, or dnf's status for a failure.

    Nothing is installed when one package is unknown. An update finds nothing: an image is locked to its version of the
    repository (AL2023 user guide, "Deterministic upgrades through versioned repositories"). `apt` is Debian's program
    with its variables.
    """
    command, *names = [word for word in arguments if not word.startswith("-")] or [""]
    if command in _UPDATES and not names:
        sys.stdout.write("Nothing to do.\nComplete!\n")
        return 0
    if command != "install" or not names:
        sys.stderr.write(f"dnf stand-in: only install and update are implemented, got {' '.join(arguments)}\n")
        return _FAILED
    if not {"-y", "--assumeyes"} & set(arguments):
        sys.stderr.write("Operation aborted.\n")  # What dnf does when nobody answers its question.
        return _FAILED
    unknown = [name for name in names if name not in DEBIAN and not (packages / name).is_dir()]
    if unknown:
        sys.stderr.write("".join(f"No match for argument: {name}\n" for name in unknown))
        sys.stderr.write(f"Error: Unable to find a match: {' '.join(unknown)}\n")
        return _FAILED
    for name in names:
        tree = packages / name
        for file in sorted(path for path in tree.rglob("*") if path.is_file()):
            target = root / file.relative_to(tree)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
    wanted = [package for name in names for package in DEBIAN.get(name, ())]
    return _install_of_debian(wanted, apt) if wanted else 0


def _install_of_debian(names: Sequence[str], apt: Sequence[str]) -> int:
    for words in (("update", "--quiet"), (*_INSTALL, *names)):
        if subprocess.run([*apt, *words], check=False).returncode:
            return _FAILED
    return 0
