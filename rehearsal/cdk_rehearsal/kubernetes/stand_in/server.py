"""HTTPS server of the stand-in: who asks, what it may, and the answers, those of watches and logs as they come."""

import http.client
import http.server
import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api.discovery import describe
from cdk_rehearsal.kubernetes.stand_in.api.objects import Objects, Write
from cdk_rehearsal.kubernetes.stand_in.api.requests import (
    Target,
    check_parameters,
    is_true,
    parse_path,
    read_body,
    read_options,
)
from cdk_rehearsal.kubernetes.stand_in.api.rights import ACCESS_REVIEWS, Attempt, require_right, review_access
from cdk_rehearsal.kubernetes.stand_in.api.tables import make_table
from cdk_rehearsal.kubernetes.stand_in.base.failures import (
    ApiError,
    refuse_unknown_sender,
    report_unknown_path,
    report_unsupported,
)
from cdk_rehearsal.kubernetes.stand_in.base.resources import NODES, PODS, Manifest
from cdk_rehearsal.kubernetes.stand_in.base.selectors import (
    matches_fields,
    matches_labels,
    parse_field_selector,
    parse_label_selector,
)
from cdk_rehearsal.kubernetes.users import Review

_TABLE = "as=Table"
_WATCH_SECONDS = 1800
_LOG_SECONDS = 3600
_PARTS = ("", "status", "log", "eviction")
_LIVE_PATHS = ("/healthz", "/livez", "/readyz")
Matcher = Callable[[Manifest], bool]


class Server(http.server.ThreadingHTTPServer):
    """
    The API server.

    Args:
        address: Address and port; port 0 for any.
        certificate: File with the certificate.
        key: File with its key.
        objects: Objects of the control plane.
        version: Minor version of Kubernetes.
        review: Finds out who sent a token.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], *, certificate: Path, key: Path, objects: Objects, version: str, review: Review
    ) -> None:
        super().__init__(address, _Handler)
        self.objects, self.version, self.review = objects, version, review
        self.is_stopping = False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # A client that connects and says nothing must not keep the others waiting: its own thread shakes hands.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self.serve_forever, name="api-server", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; watches end too."""
        self.is_stopping = True
        with self.objects.store.changed:
            self.objects.store.changed.notify_all()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a client alone that ends its connection, or does not trust the certificate."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60
    # An answer is one packet: in two, each waits for the acknowledgement of the other.
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_words: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def do_PUT(self) -> None:
        self._handle("PUT")

    def do_PATCH(self) -> None:
        self._handle("PATCH")

    def do_DELETE(self) -> None:
        self._handle("DELETE")

    def _handle(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._answer(method, body)
        except ApiError as error:
            self._send(error.code, error.to_document())
        except OSError:
            self.close_connection = True  # the client has gone away
        except Exception as error:  # noqa: BLE001 - a mistake of the stand-in must not look like a lost connection
            self._send(
                500, ApiError(500, "InternalError", f"the stand-in of Kubernetes failed: {error!r}").to_document()
            )

    def _answer(self, method: str, body: bytes) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        user = self.server.review(token) if kind == "Bearer" else None
        if user is None:
            raise refuse_unknown_sender()
        store = self.server.objects.store
        if store.failure is not None:
            raise store.failure
        path = parts.path.rstrip("/") or "/"
        document = describe(path, self.server.version)
        if document is not None or path.startswith(_LIVE_PATHS):
            require_right(store, user, Attempt("get", path=path))
            self._send(200, document) if document is not None else self._send_text("ok")
            return
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        sent = read_body(body, kind)
        if path == ACCESS_REVIEWS and method == "POST":
            self._send(201, review_access(store, user, sent))
            return
        target = parse_path(path)
        if target.part not in _PARTS or (target.part in ("log", "eviction") and target.resource is not PODS):
            raise report_unknown_path() if target.resource is not PODS else report_unsupported(f"pods/{target.part}")
        attempt = target.name_attempt(method, query)
        require_right(store, user, attempt)
        check_parameters(query, method, kind)
        if method == "GET":
            self._read(target, query)
            return
        if (
            kind.startswith("application/apply-patch")
            and store.find(target.resource, (target.namespace, target.name)) is None
        ):
            require_right(
                store, user, Attempt("create", attempt.group, attempt.resource, attempt.namespace, attempt.name)
            )
        agent = self.headers.get("User-Agent", "unknown").partition("/")[0]
        manager, where = query.get("fieldManager", agent), (target.namespace, target.name, target.part)
        self._write(method, target, Write(target.resource, *where, manager=manager, query=query), sent, kind)

    def _write(self, method: str, target: Target, write: Write, document: Any, kind: str) -> None:
        objects = self.server.objects
        if target.part == "eviction":
            self._send(201, objects.evict(write, document))
        elif method == "POST" and not target.name:
            self._send(201, objects.create(write, document), write.warnings)
        elif method == "PUT" and target.name:
            self._send(200, objects.update(write, document), write.warnings)
        elif method == "PATCH" and target.name:
            self._send(*objects.patch(write, document, kind), write.warnings)
        elif method == "DELETE" and target.name:
            self._send(200, objects.delete(write, read_options(write.query, document)), write.warnings)
        elif method == "DELETE":
            options, matches = read_options(write.query, document), _make_matcher(write.query)
            found = [each for each in objects.store.list(target.resource, target.namespace) if matches(each)]
            for each in found:
                metadata = each["metadata"]
                one = Write(target.resource, metadata.get("namespace", ""), metadata["name"], query=write.query)
                objects.delete(one, options)
            self._send(200, self._make_list(target, found))
        else:
            raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _read(self, target: Target, query: Mapping[str, str]) -> None:
        store = self.server.objects.store
        if target.part == "log":
            self._relay_log(target, query)
        elif target.name:
            found = store.get(target.resource, (target.namespace, target.name))
            self._send(200, self._show(target, [found]) if self._wants_table() else found)
        elif is_true(query.get("watch")):
            self._watch(target, query)
        else:
            matches = _make_matcher(query)
            with store.lock:
                found_all = [each for each in store.list(target.resource, target.namespace) if matches(each)]
                answer = self._show(target, found_all) if self._wants_table() else self._make_list(target, found_all)
            self._send(200, answer)

    def _wants_table(self) -> bool:
        return _TABLE in self.headers.get("Accept", "")

    def _show(self, target: Target, found: Sequence[Manifest]) -> Mapping[str, Any]:
        store = self.server.objects.store
        return make_table(target.resource, found, store.clock.read(), str(store.version))

    def _make_list(self, target: Target, found: Sequence[Manifest]) -> Mapping[str, Any]:
        items = [{name: value for name, value in each.items() if name not in ("apiVersion", "kind")} for each in found]
        return {
            "kind": f"{target.resource.kind}List",
            "apiVersion": target.resource.api_version,
            "metadata": {"resourceVersion": str(self.server.objects.store.version)},
            "items": items,
        }

    def _watch(self, target: Target, query: Mapping[str, str]) -> None:
        """Send the changes of objects as they come, until the time of the watch is over."""
        store, matches = self.server.objects.store, _make_matcher(query)
        since, events = query.get("resourceVersion", "0"), []
        with store.lock:
            seen = int(since or 0)
            if not seen:
                seen = store.version
                found = store.list(target.resource, target.namespace)
                events = [("ADDED", each) for each in found if matches(each)]
            store.read_changes(seen)
        end = monotonic() + int(query.get("timeoutSeconds", _WATCH_SECONDS))
        self._begin_stream("application/json")
        while not self.server.is_stopping:
            for kind, manifest in events:
                shown = self._show(target, [manifest]) if self._wants_table() else manifest
                self._send_chunk(json.dumps({"type": kind, "object": shown}).encode() + b"\n")
            if monotonic() >= end:
                break
            with store.changed:
                if store.version == seen:
                    store.changed.wait(min(1.0, max(0.0, end - monotonic())))
                events, seen = [*self._list_events(target, matches, seen)], store.version
        self._send_chunk(b"")

    def _list_events(self, target: Target, matches: Matcher, seen: int) -> Iterator[tuple[str, Manifest]]:
        for change in self.server.objects.store.read_changes(seen):
            last = change.after or change.before or {}
            if change.resource is not target.resource:
                continue
            if target.namespace not in ("", last["metadata"].get("namespace")):
                continue
            was = change.before is not None and matches(change.before)
            if change.after is not None and matches(change.after):
                yield "MODIFIED" if was else "ADDED", change.after
            elif was:
                yield "DELETED", last

    def _relay_log(self, target: Target, query: Mapping[str, str]) -> None:
        """Send the log of a container, which the node's kubelet has."""
        store = self.server.objects.store
        pod = store.get(PODS, (target.namespace, target.name))
        names = [container["name"] for container in pod["spec"]["containers"]]
        container = query.get("container") or names[0]
        if container not in names:
            raise ApiError(400, "BadRequest", f"container {container} is not valid for pod {target.name}")
        if "nodeName" not in pod["spec"]:
            raise ApiError(400, "BadRequest", f"pod {target.name} does not have a host assigned")
        node = store.get(NODES, ("", pod["spec"]["nodeName"]))["status"]
        address = next(each["address"] for each in node["addresses"] if each["type"] == "InternalIP")
        port = node["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        rest = urllib.parse.urlencode({name: value for name, value in query.items() if name != "container"})
        path = f"/containerLogs/{target.namespace}/{target.name}/{container}?{rest}"
        # The API server of a cluster without a certificate authority of its kubelets does not check theirs either.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(address, port, timeout=_LOG_SECONDS, context=context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise ApiError(answer.status, "InternalError", answer.read().decode(errors="replace").strip())
            self._begin_stream("text/plain")
            while chunk := answer.read1(65_536):
                self._send_chunk(chunk)
            self._send_chunk(b"")
        except OSError as error:
            raise ApiError(500, "InternalError", f'Get "https://{address}:{port}{path}": {error}') from error
        finally:
            connection.close()

    def _begin_stream(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send_chunk(self, chunk: bytes) -> None:
        """Send a part of a stream; an empty one ends it."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.flush()

    def _send(self, code: int, document: Mapping[str, Any], warnings: Sequence[str] = ()) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        for warning in warnings:
            self.send_header("Warning", f'299 - "{warning.replace(chr(34), chr(92) + chr(34))}"')
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_text(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def _make_matcher(query: Mapping[str, str]) -> Matcher:
    labels = parse_label_selector(query["labelSelector"]) if query.get("labelSelector") else None
    fields = parse_field_selector(query.get("fieldSelector", ""))

    def matches(manifest: Manifest) -> bool:
        fits = labels is None or matches_labels(labels, manifest["metadata"].get("labels", {}))
        return fits and matches_fields(fields, manifest)

    return matches
