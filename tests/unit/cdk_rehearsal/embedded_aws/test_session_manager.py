"""Session Manager's stand-ins: the agent on a node, and what it talks to."""

import threading
from datetime import datetime, timezone

import pytest

from cdk_rehearsal.embedded_aws.base.request import (
    Authorization,
    SignedRequest,
    is_signature_valid,
    name_operation,
)
from cdk_rehearsal.embedded_aws.server.session_manager import SessionManager
from cdk_rehearsal.lab.node_programs import session_agent

NODE = "i-0123456789abcdef0"
OTHER = "i-0fedcba9876543210"
CONTROL = f"/v1/control-channel/{NODE}"


def register(manager, name=NODE):
    manager.answer("ssm.UpdateInstanceInformation", name, "/", b'{"InstanceId": "%s"}' % name.encode())
    path = f"/v1/control-channel/{name}"
    manager.answer("ssmmessages.CreateControlChannel", name, path, b"{}")
    status, lines = manager.answer("ssmmessages.OpenControlChannel", name, path, b"")
    assert status == 200
    assert next(lines) == b"\n"
    return lines


def start(manager, target=NODE):
    return manager.answer("ssm.StartSession", "operator", "/", b'{"Target": "%s"}' % target.encode())


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("POST", CONTROL, "CreateControlChannel"),
        ("GET", CONTROL, "OpenControlChannel"),
        ("POST", "/v1/data-channel/rehearsal-1", "CreateDataChannel"),
        ("GET", "/v1/data-channel/rehearsal-1", "OpenDataChannel"),
        ("DELETE", CONTROL, "Unknown"),
        ("GET", "/v1/other", "Unknown"),
    ],
)
def test_channels_are_named_as_iam_names_them(method, path, operation):
    assert name_operation("ssmmessages", SignedRequest(method, path, "role=subscribe", {}, b"")) == operation


def test_a_session_reaches_the_node_and_begins_when_its_data_channel_is_open():
    manager = SessionManager()
    lines = register(manager)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(start(manager)))
    thread.start()
    session_id = session_agent.json.loads(next(lines))["SessionId"]
    path = f"/v1/data-channel/{session_id}"
    assert manager.answer("ssmmessages.OpenDataChannel", NODE, path, b"")[0] == 400  # it was not created
    assert manager.answer("ssmmessages.CreateDataChannel", OTHER, path, b"{}")[0] == 400  # it is another node's
    assert manager.answer("ssmmessages.CreateDataChannel", NODE, path, b"{}")[0] == 200
    assert answers == []
    assert manager.answer("ssmmessages.OpenDataChannel", NODE, path, b"")[0] == 200
    thread.join()
    assert answers[0][0] == 200


def test_a_node_that_is_not_connected_cannot_be_reached():
    status, body = start(SessionManager())
    assert (status, b"TargetNotConnected" in b"".join(body)) == (400, True)


def test_a_node_registers_and_opens_only_what_is_its_own():
    manager = SessionManager()
    assert (
        manager.answer("ssm.UpdateInstanceInformation", OTHER, "/", b'{"InstanceId": "%s"}' % NODE.encode())[0] == 400
    )
    assert manager.answer("ssmmessages.CreateControlChannel", NODE, CONTROL, b"{}")[0] == 400
    assert manager.answer("ssmmessages.OpenControlChannel", NODE, CONTROL, b"")[0] == 400


def test_a_rebooted_node_takes_the_place_of_its_earlier_channel():
    manager = SessionManager()
    earlier = register(manager)
    register(manager)
    assert list(earlier) == []


def test_the_agent_keeps_its_credentials_until_shortly_before_they_expire(monkeypatch):
    asked = []

    def read_metadata(path):
        asked.append(path)
        document = '{"AccessKeyId": "ASIA1", "Expiration": "2026-11-22T16:00:00Z"}'
        return document if path.endswith("/node") else path.rpartition("/")[2] or "node"

    monkeypatch.setattr(session_agent, "read_metadata", read_metadata)
    caller = session_agent.Caller("http://100.64.0.1:4566")
    for minute, reads in ((0, 3), (1, 3), (54, 3), (56, 6)):
        region, credentials = caller.read_role(datetime(2026, 11, 22, 15, minute, tzinfo=timezone.utc))
        assert (region, credentials["AccessKeyId"], len(asked)) == ("region", "ASIA1", reads)


def test_the_agents_signature_is_the_one_that_aws_asks_for():
    credentials = {"AccessKeyId": "ASIA1", "SecretAccessKey": "secret", "Token": "token"}
    headers = session_agent.sign(
        "POST",
        "100.64.0.1:4566",
        CONTROL,
        "{}",
        service="ssmmessages",
        region="us-east-1",
        credentials=credentials,
        now=datetime.now(timezone.utc),
    )
    sent = {name.lower(): value for name, value in headers.items()} | {"host": "100.64.0.1:4566"}
    authorization = Authorization.parse(headers["Authorization"])
    assert authorization.service == "ssmmessages"
    assert is_signature_valid(SignedRequest("POST", CONTROL, "", sent, b"{}"), authorization, "secret")
    assert not is_signature_valid(SignedRequest("POST", CONTROL, "", sent, b"[]"), authorization, "secret")
    assert not is_signature_valid(SignedRequest("POST", CONTROL, "", sent, b"{}"), authorization, "another")
