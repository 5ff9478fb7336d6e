"""
A proxy before the in-process AWS that breaks calls on purpose: real clients see real HTTP, and real broken connections.

It knows the operation of each call, hands it on to moto, and for the calls that were chosen does something else.
"""

import contextlib
import http.client
import http.server
import json
import os
import socket
import struct
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from botocore.awsrequest import AWSResponse, HeadersDict
from moto.core.botocore_stubber import MockRawResponse

from deeplearning_node.deadline import Clock
from tests.real_time import GENEROUS_SECONDS
from tests.unit.local_aws import Answer

EVERY = ()


class CallerDiedError(BaseException):
    """The caller of AWS ends here, as if it had been killed; no `except Exception` goes on after it."""


@dataclass(frozen=True)
class Call:
    """
    One call as it arrives.

    Attributes:
        operation: AWS's name of it.
        protocol: `json`, `query` or `rest`, for the form of an error.
        number: Counts the calls of this operation, from 1.
        total: Counts all calls, from 1.
        body: What was sent.
    """

    operation: str
    protocol: str
    number: int
    total: int
    body: bytes


@dataclass(frozen=True)
class Fault:
    """
    Fault that is injected into a call.

    Attributes:
        has_effect: True if AWS gets the call before its answer is broken.
        respond: Makes the answer from the call and AWS's own answer, which without an effect is None; returning None
            breaks the connection.
        stalls: True if the caller hears nothing until it gives up.
        seconds: Time that it costs the caller, on a clock that the test moves.
    """

    respond: Callable[[Call, Answer | None], Answer | None] = lambda call, answer: None
    has_effect: bool = False
    stalls: bool = False
    seconds: float = 0.0


def forward_over_http(url):
    """Return what hands calls on to a server of this machine."""
    address = urllib.parse.urlsplit(url)

    def forward(method, path, headers, body):
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=GENEROUS_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            kept = [(k, v) for k, v in response.getheaders() if k.lower() not in ("connection", "transfer-encoding")]
            return Answer(response.status, tuple(kept), response.read())

    return forward


def refuse(code, status=400, message=""):
    """Return a fault that answers with an error of AWS's, in the protocol of the call."""

    def respond(call, _answer):
        text = message or f"the call to {call.operation} was refused"
        if call.protocol == "json":
            document = {"__type": f"com.amazonaws.fault#{code}", "message": text}
            return Answer(status, (("Content-Type", "application/x-amz-json-1.0"),), json.dumps(document).encode())
        error = f"<Code>{code}</Code><Message>{text}</Message>"
        if call.protocol == "query":
            xml = f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>r</RequestId></ErrorResponse>"
        else:
            xml = f"<Error>{error}</Error>"
        return Answer(status, (("Content-Type", "text/xml"),), xml.encode())

    return Fault(respond)


def answer_with(change):
    """Return a fault that changes the body of AWS's answer."""
    return Fault(
        lambda call, answer: answer and Answer(answer.status, answer.headers, change(call, answer.body)),
        has_effect=True,
    )


def replay_first():
    """Return a fault that answers every call as it did the first one: a stale read."""
    kept = []

    def respond(_call, answer):
        kept.append(answer)
        return kept[0]

    return Fault(respond, has_effect=True)


def garble_status():
    """Return a fault that answers with what is no HTTP at all."""
    return Fault(lambda call, answer: Answer(0, (), b"SSH-2.0-OpenSSH_9.6\r\n"))


def stall(seconds):
    """Return a fault that never answers; the caller's own time-out costs so many seconds of its clock, and no real."""
    return Fault(stalls=True, seconds=seconds)


RESET_BEFORE = Fault()
"""The connection breaks and AWS never saw the call."""
RESET_AFTER = Fault(has_effect=True)
"""The connection breaks after the call took effect."""
GARBLED = Fault(lambda call, answer: Answer(200, (("Content-Type", "text/html"),), b"<html><body>Sign in</body></html"))
"""Somebody else answers, such as a captive portal."""
CUT_OFF = answer_with(lambda call, body: body[: len(body) // 2])
"""Half of the body arrives, and the header promised all of it."""


class VirtualClock(Clock):
    """Time that passes only by waiting, by stalled calls and a little by looking, so that no loop is for ever."""

    def __init__(self):
        self.now = 1000.0

    def read(self):
        self.now += 0.01
        return self.now

    def wait(self, seconds):
        self.now += max(0.0, seconds)

    def spend(self, seconds):
        self.now += seconds


@dataclass
class FaultProxy:
    """
    The proxy.

    Attributes:
        forward: Hands a call on, as method, path, headers and body; returns the answer.
        calls: Every operation that arrived, in order.
        spent: Called with the seconds that a stalled call costs.
    """

    forward: Callable[[str, str, dict[str, str], bytes], Answer]
    calls: list[str] = field(default_factory=list)
    spent: Callable[[float], None] = lambda seconds: None
    url: str = ""
    _stalled: set[int] = field(default_factory=set)
    _plans: list[tuple[str, tuple[int, ...], Fault]] = field(default_factory=list)

    def inject(self, fault, operation="", on=EVERY):
        """
        Break calls.

        Args:
            fault: What is done to them.
            operation: AWS's name of the operation. Default: any.
            on: Which calls: numbers of the operation's calls, of all calls where it is any. Default: every one.
        """
        self._plans.append((operation, on, fault))

    def clear(self):
        """Break nothing any more, and count anew."""
        self._plans.clear()
        self.calls.clear()

    def count(self, operation):
        """Return how often an operation was called."""
        return Counter(self.calls)[operation]

    def find_fault(self, call):
        """Return what is to be done to a call; None for nothing."""
        for operation, on, fault in self._plans:
            number = call.number if operation else call.total
            if operation in ("", call.operation) and (not on or number in on):
                return fault
        return None

    def note(self, operation, protocol, body):
        """Count a call."""
        self.calls.append(operation)
        return Call(operation, protocol, self.count(operation), len(self.calls), body)

    def answer(self, request, **_):
        """Answer botocore's `before-send` where nothing is to be broken; what is broken takes the way through HTTP."""
        parts = urllib.parse.urlsplit(request.url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        headers = {name: as_text(value) for name, value in request.headers.items()}
        body = request.body.read() if hasattr(request.body, "read") else (request.body or b"")
        body = body.encode() if isinstance(body, str) else body
        operation, protocol = read_operation(request.method, path, headers, body)
        if self.find_fault(Call(operation, protocol, self.count(operation) + 1, len(self.calls) + 1, body)):
            return None
        self.note(operation, protocol, body)
        answer = self.forward(request.method, path, headers | {"Host": parts.netloc}, body)
        return AWSResponse(request.url, answer.status, HeadersDict(answer.headers), MockRawResponse(answer.body))

    def stall(self, port, seconds):
        """Let the caller at a port of this machine give up: the clock moves before it does."""
        self.spent(seconds)
        self._stalled.add(port)

    def end_stalled(self, read):
        """Return what reads the response of a connection, and ends a call that stalls as its own time-out would."""

        def read_or_end(connection):
            port = connection.sock.getsockname()[1]
            try:
                return read(connection)
            except OSError as error:
                if port not in self._stalled:
                    raise
                self._stalled.remove(port)
                raise TimeoutError("timed out") from error

        return read_or_end

    @contextlib.contextmanager
    def serve(self):
        """Listen on a free port of this machine."""
        handler = type("BoundHandler", (_Handler,), {"proxy": self})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            with pytest.MonkeyPatch.context() as patch:
                caller = http.client.HTTPConnection
                patch.setattr(caller, "getresponse", self.end_stalled(caller.getresponse))
                yield self
        finally:
            server.shutdown()
            server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    proxy: FaultProxy

    def forward_or_break(self):
        if "Expect" in self.headers:
            self.handle_expect_100()  # The caller waits a second for it.
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = self.proxy.note(*read_operation(self.command, self.path, self.headers, body), body)
        fault = self.proxy.find_fault(call)
        if fault is None:
            self.answer(self.forward(body))
            return
        if fault.stalls:
            self.proxy.stall(self.client_address[1], fault.seconds)
            self.break_off()
            return
        answer = self.forward(body) if fault.has_effect else None
        answer = fault.respond(call, answer)
        if answer is None:
            self.break_off()
        else:
            self.answer(answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward_or_break  # noqa: N815 - the names that http.server calls

    def forward(self, body):
        return self.proxy.forward(self.command, self.path, dict(self.headers), body)

    def answer(self, answer):
        if answer.status == 0:
            self.wfile.write(answer.body)
            return
        self.send_response(answer.status)
        headers = HeadersDict(answer.headers)  # moto writes some names in two ways
        # A changed body keeps the length that it was announced with.
        headers.setdefault("Content-Length", str(len(answer.body)))
        for name, value in headers.items():
            if name.lower() not in ("date", "server"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def break_off(self):
        """Send a reset, where closing alone would end the connection in peace."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def handle(self):
        with contextlib.suppress(OSError, ValueError):
            super().handle()

    def finish(self):
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, *_arguments):
        pass


def as_text(value):
    """Return the value of a header, which botocore may have encoded."""
    return value.decode() if isinstance(value, bytes) else value


def read_operation(method, path, headers, body):
    """Return AWS's name of the operation of a request, and its protocol."""
    target = headers.get("X-Amz-Target")
    if target:
        return target.rpartition(".")[2], "json"
    if method == "POST" and "x-www-form-urlencoded" in headers.get("Content-Type", ""):
        return urllib.parse.parse_qs(body.decode())["Action"][0], "query"
    depth = len([part for part in path.partition("?")[0].split("/") if part])
    return {("GET", 2): "GetObject", ("PUT", 2): "PutObject", ("PUT", 1): "CreateBucket"}.get(
        (method, depth), f"{method} {path}"
    ), "rest"


def die_after(events, number):
    """Let the caller die once so many calls have been answered; `events` is a session, or the events of a client."""
    seen = Counter()

    def after(**_):
        seen["calls"] += 1
        if seen["calls"] == number:
            raise CallerDiedError

    events.register("after-call", after)
