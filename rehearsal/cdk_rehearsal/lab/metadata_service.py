"""
The instance metadata service of every node: IMDSv2 only, in one process.

Each node's requests arrive on a socket that listens in its own network namespace, so who asks is known by the socket.
The hop limit is not emulated.
"""

import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cdk_rehearsal.lab.metadata_documents import build_documents, find_document, render_time
from cdk_rehearsal.lab.node_faults import MetadataFault
from cdk_rehearsal.machine import Machine

LONGEST_TOKEN_SECONDS = 21_600
_TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
_VERSIONED = re.compile(r"/(latest|\d{4}-\d\d-\d\d)(/.*)?")


def utc_now() -> datetime:
    """Return the current time, UTC."""
    return datetime.now(timezone.utc)


class MetadataSession:
    """
    One machine's metadata and the tokens given out for it.

    Args:
        machine: The instance.
        now: The clock, UTC.

    Attributes:
        fault: What is wrong with the service; may be set at any time.
    """

    def __init__(self, machine: Machine, now: Callable[[], datetime] = utc_now) -> None:
        self._machine = machine
        self._now = now
        self._tokens: dict[str, datetime] = {}
        self._announced: dict[str, bytes] = {}
        self.fault = MetadataFault()

    def announce_interruption(self, seconds: float) -> None:
        """Say that EC2 terminates the instance after a time, in seconds; without it the paths do not exist."""
        at = render_time(self._now() + timedelta(seconds=seconds))
        action = json.dumps({"action": "terminate", "time": at})
        spot = {"instance-action": action.encode(), "termination-time": at.encode()}
        self._announced |= {f"meta-data/spot/{name}": text for name, text in spot.items()}

    def announce_rebalance(self) -> None:
        """Recommend a rebalance as of now."""
        notice = json.dumps({"noticeTime": render_time(self._now())})
        self._announced |= {"meta-data/events/recommendations/rebalance": notice.encode()}

    def clear_announcements(self) -> None:
        """Have nothing to announce."""
        self._announced = {}

    def issue_token(self, seconds: str | None, forwarded_for: str | None) -> tuple[HTTPStatus, bytes]:
        """
        Answer `PUT /latest/api/token`.

        Args:
            seconds: The asked lifetime, from 1 to 21,600 s, as its header says.
            forwarded_for: The `X-Forwarded-For` header: the service gives no token to a proxy.
        """
        if forwarded_for is not None:
            return HTTPStatus.FORBIDDEN, b""
        if seconds is None or not seconds.isdigit() or not 1 <= int(seconds) <= LONGEST_TOKEN_SECONDS:
            return HTTPStatus.BAD_REQUEST, b""
        token = secrets.token_urlsafe(40)
        self._tokens[token] = self._now() + timedelta(seconds=int(seconds))
        return HTTPStatus.OK, token.encode()

    def get(self, path: str, token: str | None) -> tuple[HTTPStatus, bytes]:
        """
        Answer a GET.

        Args:
            path: The request's path, version included.
            token: The token header.
        """
        expires = self._tokens.get(token or "")
        if expires is None or expires <= self._now() or self.fault.is_refusing:
            return HTTPStatus.UNAUTHORIZED, b""
        match = _VERSIONED.fullmatch(path)
        if match is None:
            return HTTPStatus.NOT_FOUND, b""
        documents = {**build_documents(self._machine, self._now()), **self._announced}
        found = find_document(documents, (match[2] or "/")[1:])
        return (HTTPStatus.NOT_FOUND, b"") if found is None else (HTTPStatus.OK, found)


class MetadataServer:
    """
    Serves one machine on a socket that already listens.

    Args:
        listener: The socket, in the node's network namespace.
        machine: The instance.

    Attributes:
        session: What is served.
    """

    def __init__(self, listener: socket.socket, machine: Machine) -> None:
        session = self.session = MetadataSession(machine)

        class Handler(_Handler):
            metadata = session

        self._server = ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        self._thread = threading.Thread(target=self._server.serve_forever, name="metadata", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; the socket is closed."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    metadata: MetadataSession
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_PUT(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        seconds = self.headers.get(_TTL_HEADER)
        if self.path != "/latest/api/token":
            self._answer(HTTPStatus.NOT_FOUND, b"")
            return
        status, body = self.metadata.issue_token(seconds, self.headers.get("X-Forwarded-For"))
        self._answer(status, body, {_TTL_HEADER: seconds or ""} if status is HTTPStatus.OK else {})

    def do_GET(self) -> None:
        self._answer(*self.metadata.get(self.path.split("?", 1)[0], self.headers.get(_TOKEN_HEADER)))

    def _answer(self, status: HTTPStatus, body: bytes, headers: dict[str, str] | None = None) -> None:
        time.sleep(self.metadata.fault.delay_seconds)
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Keep quiet: agents poll."""
