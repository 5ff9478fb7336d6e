"""
A package index for the nodes as static files, and the HTTP server for it, as an image for a private network names one.

The simple index (PEP 503) with digests: `simple/<name>/` lists the files of a project, `files/<file>` is one. A wheel's
metadata is at its own path with `.metadata` behind (PEP 658, PEP 714), so that pip can choose versions before it
fetches hundreds of megabytes.
"""

import hashlib
import html
import re
import threading
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
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


class PackageServer:
    """HTTP server of a folder's files while it is entered; port 0 chooses a free one."""

    def __init__(self, address: str, port: int, folder: Path) -> None:
        self._server = ThreadingHTTPServer((address, port), partial(_Handler, directory=str(folder)))
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


def prepare_index(cache: Path, folders: Sequence[Path], tell: Callable[[str], None]) -> Path:
    """Return the index of folders of packages, written when the cache does not hold it."""
    recipe = (Path(__file__).read_text(encoding="utf-8"), *map(str, folders))

    def fill(work: Path) -> Path:
        write_index(work / "index", folders)
        return work / "index"

    return fill_once(cache, f"index-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}", fill, tell)


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
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f'<a href="/files/{quote(path.name)}#sha256={digest}"{attributes}>{html.escape(path.name)}</a>'
