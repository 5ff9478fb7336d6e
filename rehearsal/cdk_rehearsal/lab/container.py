"""One container: an overlay of an image, one program in namespaces of its own, and its end."""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.namespaces import NAMESPACES, NodeDisk, enter, first_child, kill_process, run_inside
from cdk_rehearsal.lab.network import NodeLink

CREDENTIALS_PATH = "/v2/credentials/rehearsal"
_KILLED = 128 + signal.SIGKILL
_START = Path(__file__).with_name("start_container.sh")


@dataclass(frozen=True)
class Folder:
    """A folder of this machine that a container sees."""

    source: Path
    target: str  # Absolute path in the container
    is_writable: bool = True


@dataclass(frozen=True)
class Program:
    """The program of a container, and what it finds."""

    host: str  # Its host name
    address: str
    prefix_length: int  # Of its subnet
    layers: Sequence[Path]  # Of its image, the uppermost first
    command: Sequence[str]
    environment: Mapping[str, str]
    hosts: Mapping[str, str] = field(default_factory=dict)  # Name -> address, of it and of others
    files: Mapping[str, bytes] = field(default_factory=dict)  # Absolute path -> content; a folder ends with `/`
    folders: Sequence[Folder] = ()
    credentials: Mapping[str, str] = field(default_factory=dict)  # Answer of its credentials service
    absent: Sequence[str] = ()  # Absolute paths of files that its image has and it has not


class Container:
    """A container in a folder that holds its disk; `on_line` gets each line of output, as it arrives."""

    def __init__(self, program: Program, folder: Path, link: NodeLink, on_line: Callable[[str], None]) -> None:
        self.program, self.link = program, link
        self._folder, self._on_line = folder, on_line
        self._disk = NodeDisk(folder)
        self._service = _CredentialsService(link, program.credentials)
        self._process: subprocess.Popen[str] | None = None  # `unshare`, the parent of its first process
        self._is_killed = False
        self._reader = threading.Thread(target=self._read, name=f"output of {program.host}", daemon=True)

    @property
    def root(self) -> Path:
        """Its root file system, without its mounts."""
        return self._disk.root

    @property
    def changes(self) -> Path:
        """What differs from its image, as a layer."""
        return self._folder / "disk" / "upper"

    def start(self) -> None:
        """Start its program; RehearsalError when the kernel refused."""
        program = self.program
        self._disk.make(program.layers, {}, None)
        for path, content in program.files.items():
            place = self.changes / path.lstrip("/")
            (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
            if not path.endswith("/"):
                place.write_bytes(content)
        for path in program.absent:
            (self.root / path.lstrip("/")).unlink(missing_ok=True)
        own = self._folder / "own"
        own.mkdir()
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in program.hosts.items())]
        (own / "hosts").write_text("".join(f"{line}\n" for line in lines))
        (own / "hostname").write_text(f"{program.host}\n")
        (own / "environment").write_bytes(
            b"".join(f"{name}={text}\0".encode() for name, text in program.environment.items())
        )
        words = ["nsenter", f"--net={self.link.namespace_path}", "--", "unshare", *NAMESPACES]
        words += ["sh", str(_START), str(self.root), str(own)]
        words += [f"{each.source}={each.target}={'rw' if each.is_writable else 'ro'}" for each in program.folders]
        self._process = subprocess.Popen(
            [*words, "--", *program.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        self._reader.start()

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit status of its program, 128 more than the signal that ended it; None while it runs."""
        if self._process is None:
            return None
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join()
        # `unshare` cannot end by SIGKILL as its child does, and ends with status 1 (util-linux 2.38, unshare.c).
        return _KILLED if self._is_killed else status if status >= 0 else 128 - status

    def stop(self, seconds: float) -> None:
        """Send SIGTERM to its program, and SIGKILL unless it ends within so many seconds; wait for its end."""
        first = first_child(self._process.pid) if self._process else None
        if first is not None:
            os.kill(first, signal.SIGTERM)
        if self.wait(seconds) is None:
            self.kill()

    def kill(self) -> None:
        """End all its processes at once."""
        if self._process is None:
            return
        first = first_child(self._process.pid)
        self._is_killed = self._process.poll() is None
        # The first process of a pid namespace takes all others with it, and `unshare` ends when they have ended.
        if first is None or not kill_process(first):
            self._process.kill()
        self._process.wait()

    def read(self, path: str) -> Path:
        """Return where a path of it is on this machine, until it is removed; its mounts are not there."""
        return self.root / path.lstrip("/")

    def run(self, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        """Run another program in it, with the options of `run_inside`; RehearsalError when it has ended."""
        first = first_child(self._process.pid) if self._process else None
        if first is None:
            raise RehearsalError(f"container {self.program.host} must be running, it has ended")
        return run_inside(enter(first), argv, **options)

    def finish(self) -> Path:
        """Return what a program that has ended changed, as a layer, which stays until the container is removed."""
        self._disk.close()
        return self.changes

    def remove(self) -> None:
        """End it, and forget its disk."""
        self.kill()
        self._service.close()
        self._disk.remove()
        shutil.rmtree(self._folder / "own", ignore_errors=True)

    def _read(self) -> None:
        assert self._process is not None
        for line in self._process.stdout or ():
            self._on_line(line.rstrip("\r\n"))


class _CredentialsService:
    """The service from which SDKs in a container take its role's credentials (boto3 guide, "Container provider")."""

    def __init__(self, link: NodeLink, answer: Mapping[str, str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path == CREDENTIALS_PATH
                body = json.dumps(dict(answer) if is_known else {}).encode()
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = link.service_socket
        self._thread = threading.Thread(target=self._server.serve_forever, name="credentials", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; the socket is closed."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
