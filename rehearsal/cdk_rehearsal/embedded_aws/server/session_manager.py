"""
Session Manager between its two ends: agents on nodes that wait on their control channel, and callers of sessions.

The channels are web sockets on AWS. Here a control channel is an answer that stays open, a line for each session, and a
data channel is only opened: what would flow through it, the rehearsal brings to the node by another way.
"""

import json
import queue
import secrets
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cdk_rehearsal.embedded_aws.base.request import CHANNEL

OPERATIONS = frozenset({"ssm.UpdateInstanceInformation", "ssm.StartSession"})
"""Operations here besides all of `ssmmessages`."""
_OPEN_SECONDS = 10.0
"""So long a session waits for the agent to open its data channel."""


class SessionError(Exception):
    """A refusal, in AWS's words."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class _Session:
    target: str
    token: str = ""
    opened: threading.Event = field(default_factory=threading.Event)


class SessionManager:
    """Registered instances, their open control channels, and the sessions that were started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._registered: set[str] = set()
        self._tokens: dict[str, str] = {}
        self._channels: dict[str, queue.SimpleQueue[str]] = {}
        self._sessions: dict[str, _Session] = {}

    def answer(self, operation: str, name: str, path: str, body: bytes) -> tuple[int, Iterable[bytes]]:
        """Return HTTP status and body for the call of a node; the body of an open control channel goes on."""
        try:
            document = json.loads(body or b"{}")
            result = self._act(operation, name, path, document)
        except SessionError as error:
            return 400, [json.dumps({"__type": error.code, "message": str(error)}).encode()]
        return 200, [json.dumps(result).encode()] if isinstance(result, Mapping) else result

    def _act(
        self, operation: str, name: str, path: str, document: Mapping[str, Any]
    ) -> Mapping[str, str] | Iterator[bytes]:
        if operation == "ssm.UpdateInstanceInformation":
            return self._register(name, str(document["InstanceId"]))
        if operation == "ssm.StartSession":
            return self._start(str(document["Target"]))
        match = CHANNEL.fullmatch(path)
        assert match is not None  # the operation was named by it
        channel = match[2]
        match operation.partition(".")[2]:
            case "CreateControlChannel":
                return self._create_control(name, channel)
            case "OpenControlChannel":
                return self._open_control(name, channel)
            case "CreateDataChannel":
                return self._create_data(name, channel)
        return self._open_data(name, channel)

    def _register(self, name: str, instance_id: str) -> Mapping[str, str]:
        if name != instance_id:
            raise SessionError("InvalidInstanceId", f"{name} is not {instance_id}")
        with self._lock:
            self._registered.add(instance_id)
        return {}

    def _create_control(self, name: str, instance_id: str) -> Mapping[str, str]:
        if name != instance_id or name not in self._registered:
            raise SessionError("InvalidInstanceId", f"{instance_id} must register before it creates a control channel")
        with self._lock:
            self._tokens[name] = secrets.token_urlsafe()
        return {"MessageSchemaVersion": "1.0", "TokenValue": self._tokens[name]}

    def _open_control(self, name: str, instance_id: str) -> Iterator[bytes]:
        if name != instance_id or name not in self._tokens:
            raise SessionError("InvalidChannel", f"{instance_id} must create its control channel before it opens it")
        channel: queue.SimpleQueue[str] = queue.SimpleQueue()
        with self._lock:
            earlier, self._channels[name] = self._channels.get(name), channel
        if earlier is not None:
            earlier.put("")  # a rebooted node has a new one, and the old one's thread ends
        return _stream(channel)

    def _start(self, target: str) -> Mapping[str, str]:
        with self._lock:
            channel = self._channels.get(target)
            session_id = f"rehearsal-{uuid.uuid4().hex[:17]}"
            session = self._sessions[session_id] = _Session(target)
        if channel is None:
            raise SessionError("TargetNotConnected", f"{target} is not connected.")
        channel.put(session_id)
        if not session.opened.wait(_OPEN_SECONDS):
            raise SessionError("TargetNotConnected", f"{target} does not open its data channel.")
        return {"SessionId": session_id, "TokenValue": session.token, "StreamUrl": f"wss://rehearsal/{session_id}"}

    def _create_data(self, name: str, session_id: str) -> Mapping[str, str]:
        session = self._find_session(name, session_id)
        session.token = secrets.token_urlsafe()
        return {"MessageSchemaVersion": "1.0", "TokenValue": session.token}

    def _open_data(self, name: str, session_id: str) -> Mapping[str, str]:
        session = self._find_session(name, session_id)
        if not session.token:
            raise SessionError("InvalidChannel", f"{session_id} must have a data channel before it is opened")
        session.opened.set()
        return {}

    def _find_session(self, name: str, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None or session.target != name:
            raise SessionError("DoesNotExistException", f"{name} has no session {session_id}")
        return session


def _stream(channel: "queue.SimpleQueue[str]") -> Iterator[bytes]:
    yield b"\n"  # so that the headers leave at once
    while session_id := channel.get():
        yield json.dumps({"SessionId": session_id}).encode() + b"\n"
