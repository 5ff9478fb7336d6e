"""
Packages for the nodes as static files, and the HTTP server for them, as an image for a private network names them.

For apt a flat repository (https://wiki.debian.org/DebianRepository/Format): `Packages` describes the packages beside
it, `Release` has the digest of `Packages`. Nobody signs it, hence `trusted=yes` in the nodes' list of sources.

For pip a simple index (PEP 503) with digests: `simple/<name>/` lists the files of a project, `files/<file>` is one. A
wheel's metadata is at its own path with `.metadata` behind (PEP 658, PEP 714), so that pip can choose versions before
it fetches hundreds of megabytes.
"""

import hashlib
import html
import re
import ssl
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from cdk_rehearsal.cache import fill_once

_SEPARATORS = re.compile(r"[-_.]+")
_WHEEL = re.compile(r"(?P<name>[^-]+)-[^-]+(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
_SOURCE = re.compile(r"(?P<name>.+)-\d[^-]*\.(?:tar\.gz|zip)")

_EPOCH = "%3a"
"""The colon of a version in the name of apt's files; a server would take it for a colon."""


class PackageServer:
    """
    HTTP server of a folder's files while it is entered; port 0 chooses a free one.

    With `identity`, the files of its certificate and its key, it is an HTTPS server.
    """

    def __init__(self, address: str, port: int, folder: Path, identity: tuple[Path, Path] | None = None) -> None:
        self._server = ThreadingHTTPServer((address, port), partial(_Handler, directory=str(folder)))
        if identity is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*identity)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="packages", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """URL of the folder."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"


class _Handler(SimpleHTTPRequestHandler):
    """Keeps connections open, lists no folder, and logs nothing: its clients log what they get."""

    protocol_version = "HTTP/1.1"

    def list_directory(self, _path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND, "no such package")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


def write_archive(folder: Path) -> None:
    """Write `Packages` and `Release` for the packages of a folder; renames those whose name holds an epoch."""
    packages = "\n".join(_describe_debian(path) for path in sorted(folder.glob("*.deb")))
    (folder / "Packages").write_text(packages, encoding="utf-8")
    content = packages.encode()
    digest = f"{hashlib.sha256(content).hexdigest()} {len(content)} Packages"
    release = f"Suite: rehearsal\nDate: {formatdate(usegmt=True)}\nSHA256:\n {digest}\n"
    (folder / "Release").write_text(release, encoding="utf-8")


def source_line(url: str) -> str:
    """Return the line of apt's list of sources for the archive."""
    return f"deb [trusted=yes] {url} ./\n"


def _describe_debian(path: Path) -> str:
    command = ["dpkg-deb", "--field", str(path)]
    fields = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    path = path.rename(path.with_name(path.name.replace(_EPOCH, "_")))
    return f"{fields}\nFilename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {_digest(path)}\n"


def prepare_index(cache: Path, folders: Sequence[Path], report: Callable[[str], None]) -> Path:
    """Return the index of folders of packages, written when the cache does not hold it."""
    recipe = (Path(__file__).read_text(encoding="utf-8"), *map(str, folders))

    def fill(work: Path) -> Path:
        write_index(work / "index", folders)
        return work / "index"

    return fill_once(cache, f"index-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}", fill, report)


def write_index(index: Path, folders: Sequence[Path]) -> None:
    """Write the index of folders of wheels and sources, with links to them; of a file in two folders, the first."""
    projects = find_projects(folders)
    _write_page(index / "simple", (f'<a href="/simple/{name}/">{name}</a>' for name in projects))
    (index / "files").mkdir()
    for name, paths in projects.items():
        _write_page(index / "simple" / name, (_add_file(index / "files", path) for path in paths))


def find_projects(folders: Sequence[Path]) -> Mapping[str, tuple[Path, ...]]:
    """Return the packages of folders by the normalized name of their project."""
    files = {path.name: path for folder in reversed(folders) for path in folder.iterdir()}
    projects: dict[str, tuple[Path, ...]] = {}
    for _, path in sorted(files.items()):
        if match := _WHEEL.fullmatch(path.name) or _SOURCE.fullmatch(path.name):
            name = _SEPARATORS.sub("-", match["name"]).lower()
            projects[name] = (*projects.get(name, ()), path)
    return projects


def _write_page(folder: Path, anchors: Iterable[str]) -> None:
    lines = "".join(f"{anchor}<br>\n" for anchor in anchors)
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(f"<!DOCTYPE html>\n<html><body>\n{lines}</body></html>\n", encoding="utf-8")


def _add_file(files: Path, path: Path) -> str:
    """
    Link a package, and return its anchor.

    Metadata is offered under the name of PEP 714 alone. The older `data-dist-info-metadata` is what pip before 23.2
    looks for, which then refuses packages whose name it would have to normalize, such as PyYAML.
    """
    (files / path.name).symlink_to(path.resolve())
    attributes = ""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
            metadata = archive.read(name)
        (files / f"{path.name}.metadata").write_bytes(metadata)
        attributes = f' data-core-metadata="sha256={hashlib.sha256(metadata).hexdigest()}"'
    return f'<a href="/files/{quote(path.name)}#sha256={_digest(path)}"{attributes}>{html.escape(path.name)}</a>'


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
