"""
A package index for the nodes: an HTTP server over a folder of packages, as an image for a private network names one.

Serves the simple index (PEP 503) with digests: `/simple/<name>/` lists the files of a project, `/files/<file>` is one.
"""

import hashlib
import html
import re
import shutil
import threading
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

_SEPARATORS = re.compile(r"[-_.]+")
_WHEEL = re.compile(r"(?P<name>[^-]+)-[^-]+(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
_SOURCE = re.compile(r"(?P<name>.+)-\d[^-]*\.(?:tar\.gz|zip)")


class PackageIndex:
    """
    Serves a folder.

    Args:
        address: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        folder: Holds wheels and sources; its other files are not served.
    """

    def __init__(self, address: str, port: int, folder: Path) -> None:
        handler = type("Handler", (_Handler,), {"projects": find_projects(folder)})
        self._server = ThreadingHTTPServer((address, port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="package-index", daemon=True)

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
        """URL of the simple index, as pip's `index-url`."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/simple/"


def find_projects(folder: Path) -> Mapping[str, tuple[Path, ...]]:
    """Return the packages of a folder by the normalized name of their project."""
    projects: dict[str, tuple[Path, ...]] = {}
    for path in sorted(folder.iterdir()):
        if match := _WHEEL.fullmatch(path.name) or _SOURCE.fullmatch(path.name):
            name = normalize(match["name"])
            projects[name] = (*projects.get(name, ()), path)
    return projects


def normalize(name: str) -> str:
    """Return a project's name as the index has it."""
    return _SEPARATORS.sub("-", name).lower()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    projects: ClassVar[Mapping[str, tuple[Path, ...]]] = {}

    def do_GET(self) -> None:
        match self.path.partition("?")[0].strip("/").split("/"):
            case ["simple"]:
                self._send_page({f"/simple/{name}/": name for name in self.projects})
            case ["simple", name] if name in self.projects:
                self._send_page({f"/files/{p.name}#sha256={_digest(p)}": p.name for p in self.projects[name]})
            case ["files", name] if found := [p for paths in self.projects.values() for p in paths if p.name == name]:
                self._send_file(found[0])
            case _:
                self.send_error(HTTPStatus.NOT_FOUND, "no such package")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: the nodes' pip says what it gets."""

    def _send_page(self, links: Mapping[str, str]) -> None:
        anchors = "".join(f'<a href="{html.escape(url)}">{html.escape(text)}</a><br>\n' for url, text in links.items())
        body = f"<!DOCTYPE html>\n<html><body>\n{anchors}</body></html>\n".encode()
        self._send_head("text/html; charset=utf-8", len(body))
        self.wfile.write(body)

    def _send_file(self, path: Path) -> None:
        with path.open("rb") as file:
            self._send_head("application/octet-stream", path.stat().st_size)
            shutil.copyfileobj(file, self.wfile)

    def _send_head(self, content_type: str, length: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(length))
        self.end_headers()


@cache
def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
