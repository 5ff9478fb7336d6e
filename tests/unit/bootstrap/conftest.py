"""Surroundings of user data on a node: instance metadata, S3 as moto, and a WaitConditionHandle's URL."""

import contextlib
import http.server
import importlib.util
import io
import json
import threading
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import boto3
import pytest

USERDATA = Path(__file__).parents[3] / "userdata"
INSTANCE = "i-0123456789abcdef0"


class ScriptedServer:
    """Answers requests by a table of path -> list of (status, body), the last of which repeats."""

    def __init__(self):
        self.answers = {}
        self.requests = []
        scripted = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                path = self.path.split("?")[0]
                scripted.requests.append((self.command, path, dict(self.headers), self.rfile.read(length)))
                answers = scripted.answers.get(path, [(404, b"no such path")])
                status, body = answers.pop(0) if len(answers) > 1 else answers[0]
                if status is None:  # a connection that breaks off
                    self.connection.close()
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = answer  # noqa: N815 - the names that http.server calls

            def log_message(self, *_arguments):
                pass

            def handle(self):
                with contextlib.suppress(OSError, ValueError):
                    super().handle()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server():
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def metadata():
    """The instance metadata service, version 2: whoever brings no token is refused."""
    server = ScriptedServer()
    role = "/latest/meta-data/iam/security-credentials/"
    document = {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "secret/key", "Token": "session+token="}
    server.answers = {
        "/latest/api/token": [(200, b"token")],
        role: [(200, b"node-role\n")],
        f"{role}node-role": [(200, json.dumps(document).encode())],
        "/latest/meta-data/instance-id": [(200, INSTANCE.encode())],
        "/latest/meta-data/services/domain": [(200, b"amazonaws.com.cn\n")],
    }
    yield server
    tokens = [headers.get("X-Aws-Ec2-Metadata-Token") for method, _, headers, _ in server.requests if method == "GET"]
    assert set(tokens) <= {"token"}
    server.close()


@pytest.fixture
def fetch_agent(metadata, monkeypatch):
    """Load the script as the node runs it: as one file, with its metadata endpoint from the environment."""
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
    specification = importlib.util.spec_from_file_location("fetch_agent", USERDATA / "fetch_agent.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def aws(aws_server, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return boto3.Session(region_name="eu-west-1")


@pytest.fixture
def make_zip():
    def make(files):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return buffer.getvalue()

    return make


@pytest.fixture
def now():
    return datetime(2026, 11, 21, 7, 8, 9, tzinfo=timezone.utc)
