"""The start program of a pod: it fetches the agent with the credentials of the pod's identity, and with no others."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

USERDATA = Path(__file__).parents[3] / "userdata"
CREDENTIALS = {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "secret/key", "Token": "session+token="}


class Pod:
    """The volume of the start program in a pod, with the agent of EKS Pod Identity and S3 at one server."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        for name in ("start_pod.py", "fetch_agent.py"):
            (folder / name).write_bytes((USERDATA / name).read_bytes())
        (folder / "token").write_text("a token of the account\n")
        server.answers = {"/v1/credentials": [(200, json.dumps(CREDENTIALS).encode())]}

    def start(self, data, digest=None, **changes):
        """Run the program, with the object behind its key; return its exit status and what it said."""
        self.server.answers["/assets/agent.zip"] = [(200, data)]
        variables = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.server.url}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(self.folder / "token"),
            "AWS_ENDPOINT_URL": self.server.url,
            **changes,
        }
        given = {name: text for name, text in variables.items() if text is not None}
        words = ["assets", "agent.zip", digest or hashlib.sha256(data).hexdigest(), "eu-west-1", str(self.target)]
        answer = subprocess.run(
            [sys.executable, str(self.folder / "start_pod.py"), *words],
            env={"PATH": os.environ["PATH"], **given},
            capture_output=True,
            text=True,
            check=False,
        )
        return answer.returncode, answer.stderr

    @property
    def target(self):
        return self.folder / "agent"


@pytest.fixture
def pod(server, tmp_path):
    return Pod(server, tmp_path)


def test_a_pod_fetches_the_agent_with_its_identity_and_asks_for_no_instance_metadata(pod, make_zip):
    assert pod.start(make_zip({"deeplearning_member/__main__.py": "print(1)"})) == (0, "")
    assert (pod.target / "deeplearning_member/__main__.py").read_text() == "print(1)"
    asked, fetched = pod.server.requests
    assert (asked[1], asked[2]["Authorization"]) == ("/v1/credentials", "a token of the account")
    assert "Credential=AKIDEXAMPLE/" in fetched[2]["Authorization"]
    assert fetched[2]["X-Amz-Security-Token"] == "session+token="


def test_another_content_than_declared_is_refused(pod, make_zip):
    status, said = pod.start(make_zip({"x.py": ""}), digest="0" * 64)
    assert status == 1
    assert f"sha256 of s3://assets/agent.zip must be {'0' * 64}, got " in said
    assert not pod.target.exists()


def test_a_pod_without_an_identity_names_the_variable(pod, make_zip):
    status, said = pod.start(make_zip({"x.py": ""}), AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=None)
    assert (status, said) == (1, "start_pod: KeyError('AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE')\n")


@pytest.mark.parametrize(
    ("region", "host"),
    [("eu-west-1", "assets.s3.eu-west-1.amazonaws.com"), ("cn-north-1", "assets.s3.cn-north-1.amazonaws.com.cn")],
)
def test_the_object_is_asked_for_in_the_region_of_the_stack(monkeypatch, tmp_path, region, host):
    monkeypatch.syspath_prepend(str(USERDATA))
    import start_pod  # noqa: PLC0415 - it stands beside its module, as in a pod

    urls = []
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(start_pod, "read_credentials", lambda: ("AKIDEXAMPLE", "secret", "token"))
    monkeypatch.setattr(start_pod.fetch_agent, "send", lambda url, _: urls.append(url) or b"")
    start_pod.fetch("assets", "agent.zip", region)
    assert urls == [f"https://{host}/agent.zip"]
