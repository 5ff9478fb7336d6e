"""Stands in for dnf: installs what the image keeps for it, since a node of the lab reaches no repository."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGES = Path("/usr/lib/lab/packages")
_FAILED = 1


def main(arguments: Sequence[str], packages: Path = PACKAGES, root: Path = Path("/")) -> int:
    """Serve `dnf install --assumeyes PACKAGE...`; return 0, or dnf's status for a failure, which installs nothing."""
    names = [word for word in arguments[1:] if not word.startswith("-")]
    if arguments[:1] != ["install"] or not names:
        sys.stderr.write(f"dnf stand-in: only install is implemented, got {' '.join(arguments)}\n")
        return _FAILED
    if not {"-y", "--assumeyes"} & set(arguments):
        sys.stderr.write("Operation aborted.\n")  # What dnf does when nobody answers its question.
        return _FAILED
    unknown = [name for name in names if not (packages / name).is_dir()]
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
    return 0
