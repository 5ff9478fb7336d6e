"""Notices of EC2 against a real metadata server on loopback, and the file in which a training script finds them."""

import contextlib
import json
import logging
import re

import pytest

from deeplearning_agent.workload.interruption_notice import SpotNotices, clear_notice, write_notice
from tests.unit.loopback import LoopbackServer, respond

NOTICE = '{"action": "terminate", "time": "2026-11-21T08:22:00Z"}'
SAID = "EC2 will terminate this spot instance at 2026-11-21T08:22:00Z"


class MetadataServer(LoopbackServer):
    """Instance metadata, version 2, with one path of interest."""

    def __init__(self):
        super().__init__()
        self.status, self.text = 404, ""
        self.paths = []

    def answer(self, request, _body):
        self.paths.append(f"{request.command} {request.path}")
        is_token = request.command == "PUT" and request.path == "/latest/api/token"
        is_known = is_token or request.headers["X-aws-ec2-metadata-token"] == "token"
        if self.status == 0:
            request.wfile.write(b"nonsense\r\n")
            return
        status = (200 if is_token else self.status) if is_known else 401
        text = "token" if is_token else self.text
        respond(request, status, text.encode() if status == 200 else b"<html>no</html>")


@pytest.fixture
def imds():
    with contextlib.closing(MetadataServer()) as server:
        yield server


@pytest.fixture
def notices(imds):
    return SpotNotices({"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{imds.url}/"})


@pytest.fixture
def node(lab, ticking_clock):
    return lab.node(0, ticking_clock())


def content(lab):
    return json.loads(lab.read(0, "/opt/deeplearning/notice"))


@pytest.mark.fault(50)
def test_an_interruption_is_reported_with_what_happens_and_when(imds, notices):
    imds.status, imds.text = 200, NOTICE
    assert notices.read() == SAID
    assert imds.paths == ["PUT /latest/api/token", "GET /latest/meta-data/spot/instance-action"]


def test_no_such_path_is_no_notice_and_nothing_to_log(notices, caplog):
    assert notices.read() == ""
    assert caplog.messages == []


@pytest.mark.fault(52)
@pytest.mark.parametrize("status", [0, 401, 403, 500, 503])
def test_a_service_in_trouble_is_no_notice_and_logged_once_until_it_answers(imds, notices, caplog, status):
    imds.status = status
    assert [notices.read() for _ in range(3)] == ["", "", ""]
    [message] = caplog.messages
    assert message.startswith("could not poll for interruption notices; retrying: ")
    imds.status = 404
    notices.read()
    imds.status = status
    notices.read()
    assert len(caplog.messages) == 2


def test_an_address_without_a_server_has_no_notice(imds, notices):
    imds.close()
    assert notices.read() == ""
    assert notices.is_failing


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>login</html>",
        "[]",
        "{}",
        '{"action": 5, "time": "2026-11-21T08:22:00Z"}',
        '{"action": "terminate"}',
        '{"action": "rm -rf\\n/", "time": "2026-11-21T08:22:00Z"}',
        '{"action": "terminate", "time": "soon; echo"}',
    ],
)
def test_an_answer_that_ec2_does_not_document_is_no_notice(imds, notices, caplog, text):
    imds.status, imds.text = 200, text
    assert notices.read() == ""
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_machine_whose_metadata_is_switched_off_is_not_asked(imds):
    off = SpotNotices({"AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url, "AWS_EC2_METADATA_DISABLED": "true"})
    assert off.read() == ""
    assert imds.paths == []


@pytest.mark.fault(50)
def test_a_notice_lies_where_the_training_script_looks_and_keeps_its_time(lab, node):
    write_notice(node, "the capacity block ends")
    first = content(lab)
    assert first["reason"] == "the capacity block ends"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first["at"])
    path = node.path("/opt/deeplearning/notice")
    assert path.stat().st_mode & 0o777 == 0o644
    path.write_text(json.dumps({**first, "at": "2000-01-01T00:00:00Z"}))
    write_notice(node, "the capacity block ends")
    assert content(lab)["at"] == "2000-01-01T00:00:00Z"
    write_notice(node, SAID)
    assert content(lab)["reason"] == SAID
    assert content(lab)["at"] != "2000-01-01T00:00:00Z"


def test_a_torn_notice_is_replaced_and_one_that_is_taken_back_is_gone(lab, node):
    path = node.path("/opt/deeplearning/notice")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"{\xff")
    write_notice(node, "now")
    assert content(lab)["reason"] == "now"
    clear_notice(node)
    clear_notice(node)
    assert not path.exists()


@pytest.mark.fault(55)
def test_a_node_can_leave_with_a_full_disk(node, caplog, monkeypatch):
    def fail(*_arguments, **_options):
        raise OSError("cannot write /opt/deeplearning/notice: No space left on device")

    monkeypatch.setattr("deeplearning_agent.workload.interruption_notice.write_file", fail)
    write_notice(node, SAID)
    assert caplog.messages == ["cannot write /opt/deeplearning/notice: No space left on device"]
