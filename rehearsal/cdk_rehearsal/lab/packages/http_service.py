"""An HTTP server in a thread, which ends with the block that it was opened for."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class HttpService:
    """Serves requests while it is entered, on a free port when the port is 0."""

    def __init__(self, address: str, port: int, handler: Callable[..., BaseHTTPRequestHandler], path: str) -> None:
        self._server = ThreadingHTTPServer((address, port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name=type(self).__name__, daemon=True)
        self._path = path

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
        """URL of the service, as clients name it."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{self._path}"


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that keeps connections open, and logs nothing: its clients log what they get."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""
