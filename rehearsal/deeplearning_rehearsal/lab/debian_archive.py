"""
A Debian archive for the nodes: an HTTP server over a folder of packages with the index that apt reads.

It is a flat repository (https://wiki.debian.org/DebianRepository/Format): `Packages` describes the packages beside it,
`Release` has the digest of `Packages`. Nobody signs it, hence `trusted=yes` in the nodes' list of sources.
"""

import hashlib
import subprocess
import threading
from email.utils import formatdate
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

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


class DebianArchive:
    """
    Serves a folder.

    Args:
        address: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        folder: Packages with their index, of `write_index`.
    """

    def __init__(self, address: str, port: int, folder: Path) -> None:
        self._server = ThreadingHTTPServer((address, port), partial(_Handler, directory=str(folder)))
        self._thread = threading.Thread(target=self._server.serve_forever, name="debian-archive", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """URL of the archive, as a list of sources names it."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: the nodes' apt says what it gets."""
