"""
A Debian archive for the nodes: an HTTP server over a folder of packages with the index that apt reads.

It is a flat repository (https://wiki.debian.org/DebianRepository/Format): `Packages` describes the packages beside it,
`Release` has the digest of `Packages`. Nobody signs it, hence `trusted=yes` in the nodes' list of sources.
"""

import hashlib
import subprocess
from email.utils import formatdate
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from cdk_rehearsal.lab.packages.http_service import HttpService, QuietHandler

_EPOCH = "%3a"
"""How apt writes the colon of a version in a file's name; a server would take it for a colon."""


def write_index(folder: Path) -> None:
    """
    Write `Packages` and `Release` for the packages of a folder; dpkg-deb reads what each says of itself.

    Effects: renames packages whose name holds an epoch.
    """
    packages = "\n".join(_describe(path) for path in sorted(folder.glob("*.deb")))
    (folder / "Packages").write_text(packages, encoding="utf-8")
    content = packages.encode()
    digest = f"{hashlib.sha256(content).hexdigest()} {len(content)} Packages"
    release = f"Suite: rehearsal\nDate: {formatdate(usegmt=True)}\nSHA256:\n {digest}\n"
    (folder / "Release").write_text(release, encoding="utf-8")


def source_line(url: str) -> str:
    """Return the line with which apt's list of sources names the archive."""
    return f"deb [trusted=yes] {url} ./\n"


def _describe(path: Path) -> str:
    command = ["dpkg-deb", "--field", str(path)]
    fields = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    path = path.rename(path.with_name(path.name.replace(_EPOCH, "_")))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{fields}\nFilename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n"


class DebianArchive(HttpService):
    """Serves a folder with the index of `write_index`; its `url` is what a list of sources names."""

    def __init__(self, address: str, port: int, folder: Path) -> None:
        super().__init__(address, port, partial(_Handler, directory=str(folder)), "/")


class _Handler(QuietHandler, SimpleHTTPRequestHandler):
    """Answers with the files of the folder."""
