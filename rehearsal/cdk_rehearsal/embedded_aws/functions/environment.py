"""One Lambda execution environment: a child process that answers one event at a time."""

import importlib.util
import io
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RUNTIME_PACKAGES = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six")
"""Packages of Lambda's Python runtime beside the standard library."""
_LOG_TAIL = 64_000


@dataclass(frozen=True)
class Outcome:
    """Outcome of one invocation: the handler's result, the error or an empty text, and the end of its output."""

    seconds: float
    result: Any
    error: str
    log: str


@dataclass(frozen=True)
class Function:
    """
    A function as it was created, with its timeout in seconds and the folder of its code.

    Attributes:
        dead_letters: Takes an event that failed for good, and the last error. Default: it is dropped.
        log: Takes the text that an invocation printed. Default: it is dropped.
        decrypt: Decrypts the environment; returns why that is refused, empty when it is not.
    """

    name: str
    arn: str
    timeout: float
    environment: Mapping[str, str]
    code: Path
    dead_letters: Callable[[Any, str], None] = lambda _event, _error: None
    log: Callable[[str], None] = lambda _text: None
    decrypt: Callable[[], str] = lambda: ""


class ExecutionEnvironment:
    """Runs a function's code in a process of its own, reused like a warm environment."""

    def __init__(self, function: Function, runtime: Path) -> None:
        self._function = function
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._read, write = os.pipe()
        bootstrap = (
            f"import sys, runpy; sys.path[:0] = [{str(runtime)!r}]; sys.argv[0] = {str(_CHILD)!r}; "
            f"runpy.run_path({str(_CHILD)!r}, run_name='__main__')"
        )
        # -I -S: neither this environment's packages nor the checkout's source roots may help the function.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", bootstrap, str(write)],
            cwd=function.code,
            env=dict(function.environment),
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(write,),
        )
        os.close(write)
        self._answers = os.fdopen(self._read, "rb", buffering=0)

    @property
    def alive(self) -> bool:
        """True while the process can take another event."""
        return self._process.poll() is None

    def invoke(self, event: Any) -> Outcome:
        """Hand over an event and wait for its answer; a time-out kills the process."""
        start = time.monotonic()
        log_start = self._log.seek(0, io.SEEK_END)
        deadline, request_id = start + self._function.timeout, str(uuid.uuid4())
        request = {"event": event, "deadline": deadline, "request_id": request_id, "arn": self._function.arn}
        result, error = None, ""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._read_line(deadline)
        except BrokenPipeError:
            line = b""
        except TimeoutError:
            self.close()
            line, error = b"", f"Task timed out after {self._function.timeout:.2f} seconds"
        if line:
            answer = json.loads(line)
            result, error = answer["result"], answer["error"]
        elif not error:
            self.close()
            error = f"Runtime exited with error: exit status {self._process.returncode}"
        self._log.seek(log_start)
        log = self._log.read().decode(errors="replace")[-_LOG_TAIL:]
        return Outcome(time.monotonic() - start, result, error, log)

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def _read_line(self, deadline: float) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError
            chunk = self._answers.read(65536)
            if not chunk:
                return b""
            line += chunk
        return line


def link_runtime(folder: Path) -> Path:
    """Make a folder with links to the packages of the Lambda runtime, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _RUNTIME_PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"the Lambda runtime needs {name}")
        origin = Path(spec.origin)
        source = origin.parent if spec.submodule_search_locations else origin
        (folder / source.name).symlink_to(source)
    return folder


def unpack_code(zipped: bytes, folder: Path) -> Path:
    """Unpack a function's zip into a folder, and return it."""
    with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
        archive.extractall(folder)
    return folder


_CHILD = Path(__file__).with_name("child.py")
