"""
A Debian archive for the nodes: a folder of packages with the index that apt reads, served by `PackageServer`.

It is a flat repository (https://wiki.debian.org/DebianRepository/Format): `Packages` describes the packages beside it,
`Release` has the digest of `Packages`. Nobody signs it, hence `trusted=yes` in the nodes' list of sources.
"""

import hashlib
import subprocess
from email.utils import formatdate
from pathlib import Path

_EPOCH = "%3a"
"""The colon of a version in the name of apt's files; a server would take it for a colon."""


def write_index(folder: Path) -> None:
    """Write `Packages` and `Release` for the packages of a folder; renames those whose name holds an epoch."""
    packages = "\n".join(_describe(path) for path in sorted(folder.glob("*.deb")))
    (folder / "Packages").write_text(packages, encoding="utf-8")
    content = packages.encode()
    digest = f"{hashlib.sha256(content).hexdigest()} {len(content)} Packages"
    release = f"Suite: rehearsal\nDate: {formatdate(usegmt=True)}\nSHA256:\n {digest}\n"
    (folder / "Release").write_text(release, encoding="utf-8")


def source_line(url: str) -> str:
    """Return the line of apt's list of sources for the archive."""
    return f"deb [trusted=yes] {url} ./\n"


def _describe(path: Path) -> str:
    command = ["dpkg-deb", "--field", str(path)]
    fields = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    path = path.rename(path.with_name(path.name.replace(_EPOCH, "_")))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{fields}\nFilename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n"
