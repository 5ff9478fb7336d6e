"""Surroundings of user data on a node: instance metadata, S3 as moto, and a WaitConditionHandle's URL."""

import importlib.util
import io
import json
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import boto3
import pytest

from tests.unit.loopback import LoopbackServer, respond

USERDATA = Path(__file__).parents[3] / "userdata"
INSTANCE = "i-0123456789abcdef0"


class ScriptedServer(LoopbackServer):
    """Answers requests by a table of path -> list of (status, body), the last of which repeats."""

    def __init__(self):
        super().__init__()
        self.answers = {}
        self.requests = []

    def answer(self, request, body):
        path = request.path.split("?")[0]
        self.requests.append((request.command, path, dict(request.headers), body))
        answers = self.answers.get(path, [(404, b"no such path")])
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        if status is None:  # a connection that breaks off
            request.connection.close()
        else:
            respond(request, status, body)


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
