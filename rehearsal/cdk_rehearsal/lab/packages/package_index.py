"""
A package index for the nodes: an HTTP server over folders of packages, as an image for a private network names one.

Serves the simple index (PEP 503) with digests: `/simple/<name>/` lists the files of a project, `/files/<file>` is one.
A wheel's metadata is at its own path with `.metadata` behind (PEP 658, PEP 714), so that pip can choose versions before
it fetches hundreds of megabytes.
"""

import hashlib
import html
import re
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, unquote

from cdk_rehearsal.lab.packages.http_service import HttpService, QuietHandler

_SEPARATORS = re.compile(r"[-_.]+")
_WHEEL = re.compile(r"(?P<name>[^-]+)-[^-]+(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
_METADATA = ".metadata"
_SOURCE = re.compile(r"(?P<name>.+)-\d[^-]*\.(?:tar\.gz|zip)")


class PackageIndex(HttpService):
    """
    Serves wheels and sources of folders; its `url` is pip's `index-url`.

    Of a file in two of them the first counts.
    """

    def __init__(self, address: str, port: int, folders: Sequence[Path]) -> None:
        handler = type("Handler", (_Handler,), {"projects": find_projects(folders)})
        super().__init__(address, port, handler, "/simple/")


def find_projects(folders: Sequence[Path]) -> Mapping[str, tuple[Path, ...]]:
    """Return the packages of folders by the normalized name of their project."""
    files = {path.name: path for folder in reversed(folders) for path in folder.iterdir()}
    projects: dict[str, tuple[Path, ...]] = {}
    for _, path in sorted(files.items()):
        if match := _WHEEL.fullmatch(path.name) or _SOURCE.fullmatch(path.name):
            name = normalize(match["name"])
            projects[name] = (*projects.get(name, ()), path)
    return projects


def normalize(name: str) -> str:
    """Return a project's name as the index has it."""
    return _SEPARATORS.sub("-", name).lower()


class _Handler(QuietHandler):
    projects: ClassVar[Mapping[str, tuple[Path, ...]]] = {}

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        match unquote(self.path.partition("?")[0]).strip("/").split("/"):
            case ["simple"]:
                self._send_page(f'<a href="/simple/{name}/">{name}</a>' for name in self.projects)
            case ["simple", name] if name in self.projects:
                self._send_page(map(_describe, self.projects[name]))
            case ["files", name] if path := self._find(name):
                self._send_file(path)
            case ["files", name] if (path := self._find(name.removesuffix(_METADATA))) and path.suffix == ".whl":
                self._send("text/plain; charset=utf-8", _read_metadata(path))
            case _:
                self.send_error(HTTPStatus.NOT_FOUND, "no such package")

    def do_HEAD(self) -> None:  # noqa: N802 - likewise
        self.do_GET()

    def _find(self, name: str) -> Path | None:
        return next((path for paths in self.projects.values() for path in paths if path.name == name), None)

    def _send_page(self, anchors: Iterable[str]) -> None:
        lines = "".join(f"{anchor}<br>\n" for anchor in anchors)
        self._send("text/html; charset=utf-8", f"<!DOCTYPE html>\n<html><body>\n{lines}</body></html>\n".encode())

    def _send(self, content_type: str, body: bytes) -> None:
        self._send_head(content_type, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_file(self, path: Path) -> None:
        with path.open("rb") as file:
            self._send_head("application/octet-stream", path.stat().st_size)
            if self.command != "HEAD":
                shutil.copyfileobj(file, self.wfile)

    def _send_head(self, content_type: str, length: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def _describe(path: Path) -> str:
    """
    Return the anchor of a package.

    Metadata is offered under the name of PEP 714 alone. The older `data-dist-info-metadata` is what pip before 23.2
    looks for, which then refuses packages whose name it would have to normalize, such as PyYAML.
    """
    attributes = ""
    if path.suffix == ".whl":
        digest = f"sha256={hashlib.sha256(_read_metadata(path)).hexdigest()}"
        attributes = f' data-core-metadata="{digest}"'
    return f'<a href="/files/{quote(path.name)}#sha256={_digest(path)}"{attributes}>{html.escape(path.name)}</a>'


@cache
def _read_metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return archive.read(name)


@cache
def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
