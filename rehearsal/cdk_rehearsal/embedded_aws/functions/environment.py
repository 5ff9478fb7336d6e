"""One Lambda execution environment: a child process that answers one event at a time."""

import io
import json
import os
import select
import signal
import subprocess
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdk_rehearsal.embedded_aws.functions.interpreters import Interpreters

INIT_SECONDS = 10.0
"""
Time for loading the handler, before the function's timeout counts.

Source: Lambda Developer Guide, "Understanding the Lambda execution environment lifecycle". Lambda then begins again
within the timeout; here the loading goes on.
"""
_LOADED = b"\n"
"""Line of a process that has loaded the handler."""
_LOG_TAIL = 64_000


@dataclass(frozen=True)
class Outcome:
    """
    Outcome of one invocation.

    Attributes:
        result: What the handler returned.
        error: Kind and message of the error; empty without one.
        log: The end of its output.
        failure: The error as Lambda answers a caller who waits. Default: there was none.
    """

    seconds: float
    result: Any
    error: str
    log: str
    failure: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Function:
    """
    A function as it was created, with its timeout in seconds and the folder of its code.

    Attributes:
        runtime: Name of its runtime, such as `python3.13`.
        dead_letters: Takes an event that failed for good, and the last error. Default: it is dropped.
        log: Takes the text that an invocation printed. Default: it is dropped.
        decrypt: Decrypts the environment; returns why that is refused, empty when it is not.
        layers: ARNs of its layers; of two files at one place, that of the later layer is there.
    """

    name: str
    arn: str
    timeout: float
    environment: Mapping[str, str]
    code: Path
    runtime: str
    dead_letters: Callable[[Any, str], None] = lambda _event, _error: None
    log: Callable[[str], None] = lambda _text: None
    decrypt: Callable[[], str] = lambda: ""
    layers: Sequence[str] = ()


class ExecutionEnvironment:
    """Runs a function's code in a process of its own, reused like a warm environment."""

    def __init__(self, function: Function, interpreters: Interpreters) -> None:
        self._function = function
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._read, write = os.pipe()
        self._process = subprocess.Popen(
            interpreters.command(function.runtime, interpreters.find_layers(function.name), write),
            cwd=function.code,
            env=dict(function.environment),
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(write,),
        )
        os.close(write)
        self._answers = os.fdopen(self._read, "rb", buffering=0)
        self._unread = b""
        self._is_loaded = False

    @property
    def name(self) -> str:
        """Name of the function."""
        return self._function.name

    @property
    def alive(self) -> bool:
        """True while the process can take another event."""
        return self._process.poll() is None

    def invoke(self, event: Any) -> Outcome:
        """Hand over an event and wait for its answer; a time-out kills the process."""
        log_start = self._log.seek(0, io.SEEK_END)
        timeout, request_id = self._function.timeout, str(uuid.uuid4())
        request = {"event": event, "timeout": timeout, "request_id": request_id, "arn": self._function.arn}
        failure: Mapping[str, Any] = {}
        start, line, result, error = time.monotonic(), _LOADED, None, ""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            if not self._is_loaded:
                line, self._is_loaded, start = self._await_loading(), True, time.monotonic()
            while line == _LOADED:
                line = self._read_line(start + timeout)
        except BrokenPipeError:
            line = b""
        except TimeoutError:
            line = b""
            self.close()
            error = f"Task timed out after {self._function.timeout:.2f} seconds"
            failure = _describe("Sandbox.Timedout", error, request_id)
        if line:
            answer = json.loads(line)
            result, failure = answer["result"], answer["error"] or {}
            error = f"{failure['errorType']}: {failure['errorMessage']}" if failure else ""
            if answer.get("is_final"):
                self.close()
        elif not error:
            error = self._explain_end()
            failure = _describe("Runtime.ExitError", error, request_id)
        self._log.seek(log_start)
        log = self._log.read().decode(errors="replace")[-_LOG_TAIL:]
        return Outcome(time.monotonic() - start, result, error, log, failure)

    def _await_loading(self) -> bytes:
        """Return the first line of the process; it counts as loaded when the time for that is over."""
        try:
            return self._read_line(time.monotonic() + INIT_SECONDS)
        except TimeoutError:
            return _LOADED

    def _explain_end(self) -> str:
        """Return Lambda's words for a process that ended without an answer."""
        self.close()
        status = self._process.returncode
        if status == 0:
            return "Runtime exited without providing a reason"
        how = f"signal: {(signal.strsignal(-status) or '').lower()}" if status < 0 else f"exit status {status}"
        return f"Runtime exited with error: {how}"

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def _read_line(self, deadline: float) -> bytes:
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError
            chunk = self._answers.read(65536)
            if not chunk:
                return b""
            self._unread += chunk
        line, end, self._unread = self._unread.partition(b"\n")
        return line + end


def _describe(kind: str, error: str, request_id: str) -> Mapping[str, str]:
    return {"errorType": kind, "errorMessage": f"RequestId: {request_id} Error: {error}"}


def unpack_code(zipped: bytes, folder: Path) -> Path:
    """Unpack a function's zip into a folder, and return it."""
    with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
        archive.extractall(folder)
    return folder
