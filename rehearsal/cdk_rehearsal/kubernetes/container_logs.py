"""Logs of pods, which the API server relays from the kubelet of their node."""

import http.server
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


class ContainerLog:
    """Output of one container, line by line."""

    def __init__(self) -> None:
        self._lines: list[tuple[str, str]] = []
        self._changed = threading.Condition()
        self._is_closed = False

    def take(self, line: str) -> None:
        """Add a line."""
        with self._changed:
            self._lines.append((f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}000Z", line))
            self._changed.notify_all()

    def close(self) -> None:
        """Add no more lines."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def read(self, start: int, *, waits: bool) -> list[tuple[str, str]]:
        """Return the lines from a number on, each after its time; wait for one unless there will be none."""
        with self._changed:
            while waits and len(self._lines) <= start and not self._is_closed:
                self._changed.wait()
            return self._lines[start:]


class LogServer:
    """
    Serves `/containerLogs/<namespace>/<pod>/<container>` as kubelets do, at the addresses of all nodes.

    Attributes:
        port: Its port.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        logs = self._logs = dict[tuple[str, str], ContainerLog]()

        class Handler(_Handler):
            found = logs

        self._server = http.server.ThreadingHTTPServer(("", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="logs of pods", daemon=True).start()

    def open(self, pod: Mapping[str, Any]) -> ContainerLog:
        """Return the log of a new pod."""
        metadata = pod["metadata"]
        return self._logs.setdefault((metadata["namespace"], metadata["name"]), ContainerLog())

    def close(self) -> None:
        """Stop serving."""
        for log in self._logs.values():
            log.close()
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    found: Mapping[tuple[str, str], ContainerLog]

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(parts.query)
        _, _, namespace, pod, *_ = parts.path.split("/")
        log = self.found.get((namespace, pod))
        if log is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        is_followed, is_timed = (query.get(name) == ["true"] for name in ("follow", "timestamps"))
        lines = log.read(0, waits=False)
        number = len(lines)
        if "tailLines" in query:
            lines = lines[max(0, number - int(query["tailLines"][0])) :]
        try:
            self._write(lines, is_timed=is_timed)
            while is_followed and (lines := log.read(number, waits=True)):
                number += len(lines)
                self._write(lines, is_timed=is_timed)
        except OSError:
            return  # Whoever followed has left.

    def _write(self, lines: list[tuple[str, str]], *, is_timed: bool) -> None:
        for moment, text in lines:
            self.wfile.write((f"{moment} {text}\n" if is_timed else f"{text}\n").encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Keep quiet: logs are polled."""
