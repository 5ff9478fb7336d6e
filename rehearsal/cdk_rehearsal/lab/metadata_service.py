"""
The instance metadata service of every node: IMDSv2 only, in one process.

Each node's requests arrive on a socket of its own, so who asks is known by the socket.
The hop limit is not emulated.
"""

import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cdk_rehearsal.identity_document import sign_document
from cdk_rehearsal.lab.network import mac_address
from cdk_rehearsal.lab.node_faults import MetadataFault
from cdk_rehearsal.machine import Machine, private_dns_name

CREDENTIALS_LIFETIME = timedelta(hours=6)
LONGEST_TOKEN_SECONDS = 21_600
_MINIMUM_KEY_PARTS = 2
_TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
INTERRUPTION_SECONDS = 120.0
"""EC2 warns of a spot interruption two minutes ahead."""
_VERSIONED = re.compile(r"/(latest|\d{4}-\d\d-\d\d)(/.*)?")


def utc_now() -> datetime:
    """Return the current time, UTC."""
    return datetime.now(timezone.utc)


class MetadataSession:
    """One machine's metadata and the tokens given out for it; `fault` may be set at any time, `now` is UTC."""

    def __init__(self, machine: Machine, now: Callable[[], datetime] = utc_now) -> None:
        self._machine = machine
        self._now = now
        self._tokens: dict[str, datetime] = {}
        self._announced: dict[str, bytes] = {}
        self.fault = MetadataFault()

    def announce_interruption(self, seconds: float = INTERRUPTION_SECONDS) -> None:
        """Announce that EC2 terminates the instance in so many seconds; without it the paths do not exist."""
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
        """Answer `PUT /latest/api/token` for a lifetime of 1 to 21,600 s; a proxy, which forwards, gets no token."""
        if forwarded_for is not None:
            return HTTPStatus.FORBIDDEN, b""
        if seconds is None or not seconds.isdigit() or not 1 <= int(seconds) <= LONGEST_TOKEN_SECONDS:
            return HTTPStatus.BAD_REQUEST, b""
        token = secrets.token_urlsafe(40)
        self._tokens[token] = self._now() + timedelta(seconds=int(seconds))
        return HTTPStatus.OK, token.encode()

    def get(self, path: str, token: str | None) -> tuple[HTTPStatus, bytes]:
        """Answer a GET of a path, version included."""
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
    """HTTP server of one machine on a socket that listens already."""

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


def build_documents(machine: Machine, now: datetime) -> Mapping[str, bytes]:
    """Return path below `/latest/` -> content; credentials are shown as refreshed at `now`, UTC."""
    texts = {f"meta-data/{path}": text for path, text in _metadata(machine).items()}
    texts |= {f"meta-data/tags/instance/{name}": value for name, value in machine.tags.items()}
    if machine.role_name:
        texts[f"meta-data/iam/security-credentials/{machine.role_name}"] = _credentials(machine, now)
    if machine.public_key:
        # The name of the pair is the key's comment, which EC2 sets; a listing shows `<index>=<name>`.
        texts["meta-data/public-keys/0/openssh-key"] = machine.public_key.strip() + "\n"
    texts["dynamic/instance-identity/document"] = _identity(machine)
    texts["dynamic/instance-identity/signature"] = sign_document(_identity(machine))
    documents = {path: text.encode() for path, text in texts.items()}
    return documents | ({"user-data": machine.user_data} if machine.user_data else {})


def find_document(documents: Mapping[str, bytes], path: str) -> bytes | None:
    """Return the document or the listing of the folder at a path below `/latest/`; None where there is nothing."""
    if path in documents:
        return documents[path]
    prefix = path.rstrip("/") + "/" if path.strip("/") else ""
    below = [name.removeprefix(prefix) for name in documents if name.startswith(prefix)]
    if not below:
        return None
    if prefix == "meta-data/public-keys/":
        key = documents["meta-data/public-keys/0/openssh-key"].decode().split(maxsplit=2)
        return b"0=" + (key[2].strip() if len(key) > _MINIMUM_KEY_PARTS else "key").encode()
    entries = sorted({name.split("/", 1)[0] + ("/" if "/" in name else "") for name in below})
    return "\n".join(entries).encode()


def _metadata(machine: Machine) -> dict[str, str]:
    mac = mac_address(machine.address)
    return {
        "ami-id": machine.image_id,
        "hostname": private_dns_name(machine),
        "instance-id": machine.instance_id,
        "instance-type": machine.instance_type,
        "local-hostname": private_dns_name(machine),
        "local-ipv4": machine.address,
        "mac": mac,
        "network/interfaces/macs/" + mac + "/local-ipv4s": machine.address,
        "network/interfaces/macs/" + mac + "/vpc-ipv4-cidr-blocks": "\n".join(machine.vpc_networks),
        "placement/availability-zone": machine.zone,
        "placement/region": machine.region,
        "services/domain": "amazonaws.com",
        "services/partition": "aws",
    }


def _credentials(machine: Machine, now: datetime) -> str:
    document = {
        "Code": "Success",
        "LastUpdated": render_time(now),
        "Type": "AWS-HMAC",
        "AccessKeyId": machine.access_key_id,
        "SecretAccessKey": machine.secret_access_key,
        "Token": machine.session_token,
        "Expiration": render_time(now + CREDENTIALS_LIFETIME),
    }
    return json.dumps(document, indent=2)


def _identity(machine: Machine) -> str:
    document = {
        "architecture": "x86_64",
        "availabilityZone": machine.zone,
        "imageId": machine.image_id,
        "instanceId": machine.instance_id,
        "instanceType": machine.instance_type,
        "privateIp": machine.address,
        "region": machine.region,
        "version": "2017-09-30",
    }
    return json.dumps(document, indent=2)


def render_time(moment: datetime) -> str:
    """Render a time as the service does."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
