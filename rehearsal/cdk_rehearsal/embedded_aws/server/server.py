"""
The HTTP server of the embedded AWS.

moto answers behind it. Before moto sees a request, its signature is verified, its caller is known, the deployed
policies allow it and the call is recorded. Calls of one service are served one at a time, because moto's conditional
writes are not atomic otherwise.
"""

import io
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import isfunction
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

import moto.backends
import moto.core.responses
from moto.core.utils import method_names_from_class
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from cdk_rehearsal.embedded_aws.access.authorizer import Authorizer, Denial
from cdk_rehearsal.embedded_aws.base.principals import OPERATOR, Principal, PrincipalRegistry, caller
from cdk_rehearsal.embedded_aws.base.request import (
    CHANNEL_SERVICE,
    REST_JSON,
    Authorization,
    SignedRequest,
    is_signature_valid,
    name_operation,
)
from cdk_rehearsal.embedded_aws.base.signals import PRESIGNED_PREFIX, PresignedUrls
from cdk_rehearsal.embedded_aws.emr.node_channel import CHANNEL_PREFIX, NodeChannels
from cdk_rehearsal.embedded_aws.server import session_manager
from cdk_rehearsal.embedded_aws.server.call_log import UNIMPLEMENTED, CallLog
from cdk_rehearsal.identity_document import SCHEME, read_instance

_OK, _JSON_STATUS, _FORBIDDEN = 200, 400, 403
_STOP_SECONDS = 0.05
"""Longest wait for the end of the server."""
_FORM_CODES = {
    "ec2": ("UnauthorizedOperation", "UnauthorizedOperation"),  # EC2 API, "Error codes for the Amazon EC2 API"
    "sns": ("AuthorizationError", "KMSAccessDenied"),
}

_XML = {"Content-Type": "application/xml"}
_JSON = {"Content-Type": "application/json"}
Refusal = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


def _word_denial(service: str, request: SignedRequest, denial: Denial) -> Refusal:
    """Return the refusal of a call that is not allowed, in the protocol of the service."""
    if service in REST_JSON:
        body = json.dumps({"message": denial.message}).encode()
        return _FORBIDDEN, {**_JSON, "x-amzn-ErrorType": "AccessDeniedException"}, body
    if "x-amz-target" in request.headers or request.body[:1] == b"{":
        return _word_json(service, denial)
    if service == "s3":
        text = _word_error("AccessDenied", denial.message) if request.method != "HEAD" else ""
        return _FORBIDDEN, _XML, text.encode()
    code, key_code = _FORM_CODES.get(service, ("AccessDenied", "AccessDenied"))
    inner = _word_error(key_code if denial.is_about_key else code, denial.message, kind="<Type>Sender</Type>")
    return _FORBIDDEN, {"Content-Type": "text/xml"}, _wrap(inner).encode()


def _word_json(service: str, denial: Denial) -> Refusal:
    headers = {"Content-Type": "application/x-amz-json-1.0"}
    if service == "sqs":
        code = "KMS.AccessDeniedException" if denial.is_about_key else "AccessDenied"
        headers["x-amzn-query-error"] = f"{code};Sender"
    kind = "com.amazon.coral.service#AccessDeniedException"
    return _JSON_STATUS, headers, json.dumps({"__type": kind, "message": denial.message}).encode()


def _word_error(code: str, message: str, kind: str = "") -> str:
    return f"<Error>{kind}<Code>{code}</Code><Message>{escape(message)}</Message></Error>"


def _wrap(error: str) -> str:
    return f"<ErrorResponse>{error}<RequestId>rehearsal</RequestId></ErrorResponse>"


# moto lists its folder at every request to find this; the answer never changes.
_MODULES = tuple(moto.backends.list_of_moto_modules())
moto.backends.list_of_moto_modules = lambda: iter(_MODULES)


class _Methods:
    """Names of the methods of an API; moto lists and sorts all of them at every call, to find one."""

    def __init__(self, api: type) -> None:
        self._api = api

    def __contains__(self, name: str) -> bool:
        return isfunction(getattr(self._api, name, None))


setattr(moto.core.responses, method_names_from_class.__name__, _Methods)

_SIGNAL_SCOPE = (
    "AWS4-HMAC-SHA256 Credential=CFN/20000101/us-east-1/cloudformation/aws4_request, SignedHeaders=, Signature="
)
_RIGHTS = frozenset({"elasticfilesystem.ClientMount", "elasticfilesystem.ClientWrite"})
"""Rights without an API, for which EFS asks when a client mounts."""
_Environ = dict[str, Any]
_StartResponse = Callable[..., Any]


def _create_app(service: Any) -> Any:
    """Create moto's application of a service; its own errors reach the server instead of becoming a page."""
    app = create_backend_app(service)
    app.config["PROPAGATE_EXCEPTIONS"] = True
    return app


def _word_failure(operation: str, request: SignedRequest, error: Exception) -> Refusal:
    """Return an error that names the rehearsal, which no client repeats: AWS may have carried the call out."""
    message = f"the rehearsal could not carry out {operation}, AWS may: {type(error).__name__}: {error}"
    if "x-amz-target" in request.headers or request.body[:1] == b"{" or operation.partition(".")[0] in REST_JSON:
        body = json.dumps({"__type": "InternalFailure", "message": message})
        return UNIMPLEMENTED, {"Content-Type": "application/x-amz-json-1.0"}, body.encode()
    inner = _word_error("InternalFailure", message)
    return UNIMPLEMENTED, _XML, (inner if operation.startswith("s3.") else _wrap(inner)).encode()


class _QuietHandler(MotoRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: calls are recorded in the call log."""


class Server:
    """
    Serves AWS on one address and port (0: a free one).

    S3 returns objects `object_seconds` late. `authorizer` is None until a stack is deployed. What is in `outside`,
    `service.Operation`, is answered without the lock of its service: a function that is invoked may call it too.
    """

    def __init__(
        self,
        address: str,
        port: int,
        *,
        principals: PrincipalRegistry,
        calls: CallLog,
        presigned: PresignedUrls,
        channels: NodeChannels,
        object_seconds: float = 0.0,
    ) -> None:
        self._principals = principals
        self._calls = calls
        self._presigned = presigned
        self._channels = channels
        self._object_seconds = object_seconds
        self.authorizer: Authorizer | None = None
        self.outside: dict[str, Callable[[SignedRequest], Refusal]] = {}
        self._sessions = session_manager.SessionManager()
        self._moto = DomainDispatcherApplication(_create_app)
        self._locks: dict[str, threading.RLock] = {}
        self._server: BaseWSGIServer = make_server(
            address, port, self._serve, threaded=True, request_handler=_QuietHandler
        )
        serve = partial(self._server.serve_forever, poll_interval=_STOP_SECONDS)
        self._thread = threading.Thread(target=serve, name="embedded-aws", daemon=True)

    @property
    def endpoint(self) -> str:
        """URL of the server, without a path."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> None:
        """Begin to serve, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End serving and close the listening socket."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, environ: _Environ, start_response: _StartResponse) -> Iterable[bytes]:
        request = _read_request(environ)
        if request.path.startswith(PRESIGNED_PREFIX):
            status, text = self._presigned.answer(
                request.method, request.path, request.query, request.headers, request.body
            )
            return _answer(start_response, status, text.encode())
        if request.path.startswith(CHANNEL_PREFIX):
            return _answer(start_response, *self._channels.answer(request.path, request.body))
        if request.headers.get("authorization", "").startswith(SCHEME):
            return self._answer_signal(environ, start_response, request)
        authorization = Authorization.parse(request.headers.get("authorization", ""))
        principal = self._authenticate(request, authorization)
        if isinstance(principal, str):
            return _refuse(start_response, request, principal)
        assert authorization is not None
        name = f"{authorization.service}.{name_operation(authorization.service, request)}"
        if principal is not OPERATOR and (denial := self._find_denial(principal, name, request)) is not None:
            status, denied_headers, body = _word_denial(authorization.service, request, denial)
            self._calls.record(time.monotonic(), name, principal, status)
            return _answer(start_response, status, body, denied_headers)
        return self._answer_call(environ, start_response, name, principal, request)

    def _answer_signal(
        self, environ: _Environ, start_response: _StartResponse, request: SignedRequest
    ) -> Iterable[bytes]:
        """Answer `SignalResource` of an instance, which its document identifies; it needs no right of a role."""
        instance_id = read_instance(request.headers["authorization"])
        operation = name_operation("cloudformation", request)
        if instance_id is None or operation != "SignalResource":
            return _refuse(start_response, request, "AccessDenied")
        # moto finds a service by the scope of the credentials.
        environ["HTTP_AUTHORIZATION"] = _SIGNAL_SCOPE
        principal = Principal("instance", "", instance_id)
        return self._answer_call(environ, start_response, f"cloudformation.{operation}", principal, request)

    def _find_denial(self, principal: Principal, operation: str, request: SignedRequest) -> Denial | None:
        assert self.authorizer is not None  # only a deployed stack has principals beside the operator
        return self.authorizer.check(principal, operation, request)

    def _answer_call(
        self,
        environ: _Environ,
        start_response: _StartResponse,
        operation: str,
        principal: Principal,
        request: SignedRequest,
    ) -> Iterable[bytes]:
        status = [500]

        def start(line: str, headers: Any, *rest: Any) -> Any:
            status[0] = int(line.split(maxsplit=1)[0])
            return start_response(line, headers, *rest)

        if operation.startswith(f"{CHANNEL_SERVICE}.") or operation in session_manager.OPERATIONS:
            return self._answer_session(environ, start, operation, principal)
        if operation in self.outside:
            status[0], headers, text = self.outside[operation](request)
            self._calls.record(time.monotonic(), operation, principal, status[0])
            return _answer(start, status[0], text, headers)
        if operation in _RIGHTS:
            return _answer(start, _OK, b"")
        if operation == "s3.GetObject":
            time.sleep(self._object_seconds)
        token = caller.set(principal)
        # A long poll waits inside moto; it takes the queue lock itself.
        service, name = operation.split(".", 1)
        lock = threading.RLock() if name == "ReceiveMessage" else self._locks.setdefault(service, threading.RLock())
        try:
            with lock:
                body: Iterable[bytes] = list(self._moto(environ, start))
        except Exception as error:  # noqa: BLE001 - whatever moto raises is no error of AWS
            status[0], headers, text = _word_failure(operation, request, error)
            body = _answer(start_response, status[0], text, headers)
        finally:
            caller.reset(token)
            self._calls.record(time.monotonic(), operation, principal, status[0])
        return body

    def _answer_session(
        self, environ: _Environ, start: _StartResponse, operation: str, principal: Principal
    ) -> Iterable[bytes]:
        """Answer outside of every lock: a control channel stays open for as long as its node lives."""
        request = environ["wsgi.input"].read()
        status, body = self._sessions.answer(operation, principal.name, environ.get("PATH_INFO", ""), request)
        self._calls.record(time.monotonic(), operation, principal, status)
        start(f"{status} Answered", [("Content-Type", "application/x-amz-json-1.1")])
        return body

    def _authenticate(self, request: SignedRequest, authorization: Authorization | None) -> Principal | str:
        if authorization is None:
            return "MissingAuthenticationToken"
        known = self._principals.find(authorization.access_key_id)
        if known is None:
            return "InvalidClientTokenId"
        credentials, principal = known
        if credentials.session_token != request.headers.get("x-amz-security-token", ""):
            return "InvalidClientTokenId"
        if principal is OPERATOR or is_signature_valid(request, authorization, credentials.secret_access_key):
            return principal
        return "SignatureDoesNotMatch"


def _read_request(environ: _Environ) -> SignedRequest:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    stream = environ["wsgi.input"]
    body: bytes = stream.read() if environ.get("wsgi.input_terminated") else stream.read(length)
    environ["wsgi.input"] = io.BytesIO(body)
    environ["wsgi.input_terminated"] = False
    environ["CONTENT_LENGTH"] = str(len(body))
    headers = {name[5:].replace("_", "-").lower(): str(value) for name, value in environ.items() if name[:5] == "HTTP_"}
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    headers["content-length"] = environ["CONTENT_LENGTH"]
    path, _, query = str(environ.get("RAW_URI") or environ.get("REQUEST_URI") or "").partition("?")
    if not path.startswith("/"):
        path = quote(environ.get("PATH_INFO", "/").encode("latin-1"), safe="/-_.~")
        query = environ.get("QUERY_STRING", "")
    return SignedRequest(environ["REQUEST_METHOD"], path, query, headers, body)


def _answer(
    start_response: _StartResponse, status: int, body: bytes, headers: Mapping[str, str] = _XML
) -> Iterable[bytes]:
    word = "OK" if status < 400 else "Refused"  # noqa: PLR2004 - HTTP's own number
    start_response(f"{status} {word}", [*headers.items(), ("Content-Length", str(len(body)))])
    return [body]


def _refuse(start_response: _StartResponse, request: SignedRequest, code: str) -> Iterable[bytes]:
    message = "The request signature or security token that the request has is not valid."
    error = _word_error(code, message, "<Type>Sender</Type>")
    if "x-amz-target" in request.headers:
        error = f'{{"__type": "{code}", "message": "{message}"}}'
    elif request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        error = _wrap(error)
    return _answer(start_response, _FORBIDDEN, error.encode())
