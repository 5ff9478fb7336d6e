"""Instance metadata and the credentials that come from it: slow, refused, broken, late and expired."""

import contextlib
import json
import time
from datetime import datetime, timedelta, timezone

import pytest
from fault_proxy import (
    CUT_OFF,
    GARBLED,
    RESET_BEFORE,
    Answer,
    Fault,
    FaultProxy,
    forward_over_http,
    garble_status,
    refuse,
    stall,
)

from deeplearning_node import aws_clients, instance_metadata
from deeplearning_node.aws_clients import CREDENTIALS_SECONDS, METADATA_SECONDS, AwsClients, call_for
from deeplearning_node.deadline import LONGEST_PAUSE_SECONDS, Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.instance_metadata import ANSWER_SECONDS, LIMIT_SECONDS, read_identity
from tests.real_time import GENEROUS_SECONDS
from tests.unit.loopback import LoopbackServer, respond

TOKEN = "PUT /latest/api/token"
INSTANCE_ID = "GET /latest/meta-data/instance-id"
ROLE = "/latest/meta-data/iam/security-credentials/"
UNTRUSTED = Fault(
    lambda call, answer: Answer(200, (), b'{"Code": "AssumeRoleUnauthorizedAccess", "Message": "EC2 cannot assume it"}')
)
DIFFERENT_PAGE = Fault(lambda call, answer: Answer(200, (), b"<html>It works!</html>"))


class MetadataServer(LoopbackServer):
    """Instance metadata, version 2, with the credentials of a role."""

    def __init__(self):
        super().__init__()
        self.keys = iter(["AKIDFIRST", "AKIDSECOND", "AKIDTHIRD"])
        self.lifetimes = iter([timedelta(hours=6)])

    def answer(self, request, _body):
        text = "token" if request.command == "PUT" else self.read(request.path)
        is_known = request.command == "PUT" or request.headers["X-aws-ec2-metadata-token"] == "token"
        respond(request, 401 if not is_known else 404 if text is None else 200, (text or "").encode())

    def read(self, path):
        if path == f"{ROLE}node-role":
            end = datetime.now(timezone.utc) + next(self.lifetimes, timedelta(hours=6))
            document = {"AccessKeyId": next(self.keys), "SecretAccessKey": "secret", "Token": "token"}
            return json.dumps(document | {"Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "Code": "Success"})
        texts = {
            "/latest/meta-data/instance-id": "i-0123456789abcdef0",
            "/latest/meta-data/local-ipv4": "10.1.2.3",
            "/latest/meta-data/mac": "02:00:0a:01:02:03",
            "/latest/meta-data/network/interfaces/macs/02:00:0a:01:02:03/vpc-ipv4-cidr-blocks": "10.1.0.0/16",
            ROLE: "node-role",
        }
        return texts.get(path)


@pytest.fixture
def metadata():
    with contextlib.closing(MetadataServer()) as found:
        yield found


@pytest.fixture
def imds(metadata, clock, monkeypatch):
    """A proxy before the metadata service, to which every client is led; real time ends no call."""
    monkeypatch.setattr(instance_metadata, "ANSWER_SECONDS", GENEROUS_SECONDS)
    monkeypatch.setattr(aws_clients, "METADATA_SECONDS", GENEROUS_SECONDS)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    found = FaultProxy(forward_over_http(metadata.url), spent=clock.spend)
    with found.serve():
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", found.url)
        yield found


def age_credentials(clients):
    """Let six hours pass for the credentials alone."""
    clients.session.get_credentials()._expiry_time = datetime.now(timezone.utc) + timedelta(minutes=1)


def identify(imds, clock):
    return read_identity(clock, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url})


FAULTS = {
    "refused": refuse("Unauthorized", 401),
    "unavailable": refuse("Busy", 503),
    "reset": RESET_BEFORE,
    "stall": stall(ANSWER_SECONDS),
    "cut-off": CUT_OFF,
    "garbled": GARBLED,
    "no-http": garble_status(),
    "other-page": DIFFERENT_PAGE,
    "empty": Fault(lambda call, answer: Answer(200, (), b"")),
}


@pytest.mark.fault(52)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_metadata_service_that_fails_for_a_while_is_asked_again(imds, clock, fault):
    imds.inject(fault, INSTANCE_ID, on=(1, 2, 3))
    assert identify(imds, clock).instance_id == "i-0123456789abcdef0"
    assert imds.count(INSTANCE_ID) == 4


@pytest.mark.fault(52)
@pytest.mark.parametrize(
    ("name", "operation", "words"),
    [
        ("refused", INSTANCE_ID, "401"),
        ("unavailable", TOKEN, "503"),
        ("reset", TOKEN, "PUT http://127.0.0.1"),
        ("stall", TOKEN, "timed out"),
        ("no-http", TOKEN, "BadStatusLine"),
        ("other-page", INSTANCE_ID, "It works!"),
        ("empty", INSTANCE_ID, "empty response"),
    ],
)
def test_one_that_never_recovers_is_named_with_its_cause_in_bounded_time(imds, clock, name, operation, words):
    imds.inject(FAULTS[name], operation)
    began = clock.now
    with pytest.raises(StageFailure) as raised:
        identify(imds, clock)
    assert clock.now - began < LIMIT_SECONDS + 3 * ANSWER_SECONDS + LONGEST_PAUSE_SECONDS
    assert words in raised.value.cause
    assert imds.url in raised.value.cause
    assert "hop limit" in raised.value.remedy, "a container one hop further gets no token"


@pytest.mark.fault(53)
def test_credentials_that_come_late_are_waited_for(imds, proxy, clock):
    imds.inject(refuse("NotFound", 404), f"GET {ROLE}", on=(1, 2, 3))
    clients = AwsClients("eu-west-1")
    clients.wait_for_credentials(Deadline.after(clock, 3000))
    assert clients.session.get_credentials().access_key == "AKIDFIRST"
    assert imds.count(f"GET {ROLE}") == 4


@pytest.mark.fault(52, 53)
@pytest.mark.defect("D38")
@pytest.mark.parametrize(
    ("operation", "fault", "words"),
    [
        (f"GET {ROLE}", refuse("NotFound", 404), "HTTP Error 404: Not Found, to GET"),
        (TOKEN, refuse("Forbidden", 403), "HTTP Error 403: Forbidden, to PUT"),
        (f"GET {ROLE}node-role", GARBLED, "Expecting value"),
        (f"GET {ROLE}node-role", UNTRUSTED, "role node-role: {'Code': 'AssumeRoleUnauthorizedAccess'"),
    ],
    ids=["no-role", "disabled", "not-json", "not-trusted"],
)
def test_credentials_that_never_come_end_the_preparation_with_the_cause(imds, clock, operation, fault, words):
    imds.inject(fault, operation)
    began = clock.now
    with pytest.raises(StageFailure, match="no AWS credentials") as raised:
        AwsClients("eu-west-1").wait_for_credentials(Deadline.after(clock, 3000))
    assert words in raised.value.cause
    assert clock.now - began < CREDENTIALS_SECONDS + LONGEST_PAUSE_SECONDS
    assert "instance profile" in raised.value.remedy


@pytest.mark.fault(52)
def test_a_metadata_service_that_takes_longer_than_a_second_still_gives_credentials(imds, clock):
    """The one real wait of these tests: botocore by itself would give up after a second, and make one attempt."""

    def late(_call, answer):
        time.sleep(1.2)
        return answer

    assert METADATA_SECONDS > 2
    imds.inject(Fault(late, has_effect=True), f"GET {ROLE}")
    clients = AwsClients("eu-west-1")
    clients.wait_for_credentials(Deadline.after(clock, 3000))
    assert imds.count(f"GET {ROLE}") == 1


@pytest.mark.fault(53)
def test_credentials_that_are_about_to_expire_are_refreshed_for_the_next_call(imds, proxy, clock):
    clients = AwsClients("eu-west-1")
    clients.wait_for_credentials(Deadline.after(clock, 3000))
    age_credentials(clients)
    call_for(clock, 300, clients.dynamodb.list_tables)
    assert clients.session.get_credentials().access_key == "AKIDSECOND"


@pytest.mark.fault(53)
def test_a_refresh_that_fails_is_tried_again_by_the_call_that_needs_it(imds, proxy, clock):
    clients = AwsClients("eu-west-1")
    clients.wait_for_credentials(Deadline.after(clock, 3000))
    age_credentials(clients)
    imds.clear()
    imds.inject(refuse("Busy", 503), TOKEN, on=(1, 2, 3))
    assert call_for(clock, 300, clients.dynamodb.list_tables)["TableNames"] == []
    assert imds.count(TOKEN) == 4


@pytest.mark.fault(53, 54)
def test_credentials_that_look_expired_to_a_wrong_clock_are_used_all_the_same(imds, metadata, proxy, clock):
    """AWS, not this node's clock, says whether they are good."""
    metadata.lifetimes = iter([timedelta(minutes=-10)] * 3)
    clients = AwsClients("eu-west-1")
    clients.wait_for_credentials(Deadline.after(clock, 3000))
    assert call_for(clock, 300, clients.dynamodb.list_tables)["TableNames"] == []
