"""The instance metadata service, as programs on a node see it."""

import json
import socket
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from http import HTTPStatus

import pytest
from botocore.credentials import InstanceMetadataProvider
from botocore.utils import InstanceMetadataFetcher

from cdk_rehearsal.lab.metadata_service import (
    MetadataServer,
    MetadataSession,
    build_documents,
    find_document,
)
from cdk_rehearsal.lab.node_faults import MetadataFault
from cdk_rehearsal.machine import Machine, private_dns_name
from tests.real_time import GENEROUS_SECONDS

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ my-key"


def make_machine(**changes):
    values = {
        "instance_id": "i-0123456789abcdef0",
        "address": "10.0.128.37",
        "prefix_length": 20,
        "vpc_networks": ("10.0.0.0/16", "100.64.0.0/16"),
        "instance_type": "p3dn.24xlarge",
        "zone": "eu-west-1a",
        "region": "eu-west-1",
        "image_id": "ami-1",
        "user_data": b"#!/bin/bash\n",
        "role_name": "WorkerRole",
        "access_key_id": "AKIA",
        "secret_access_key": "secret",
        "session_token": "token",
        "tags": {"deeplearning:role": "worker"},
        "login_user": "ubuntu",
        "public_key": KEY,
        "mount_targets": {},
    }
    return Machine(**values | changes)


def read(path, **changes):
    found = find_document(build_documents(make_machine(**changes), NOW), path)
    return None if found is None else found.decode()


@pytest.fixture
def server():
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    served = MetadataServer(listener, make_machine())
    yield address
    served.close()


class Session(MetadataSession):
    def __init__(self):
        self.time = NOW
        super().__init__(make_machine(), lambda: self.time)

    def token(self, seconds="60"):
        return self.issue_token(seconds, None)[1].decode()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("meta-data/instance-id", "i-0123456789abcdef0"),
        ("meta-data/local-ipv4", "10.0.128.37"),
        ("meta-data/mac", "02:00:0a:00:80:25"),
        ("meta-data/network/interfaces/macs/02:00:0a:00:80:25/vpc-ipv4-cidr-blocks", "10.0.0.0/16\n100.64.0.0/16"),
        ("meta-data/placement/availability-zone", "eu-west-1a"),
        ("meta-data/placement/region", "eu-west-1"),
        ("meta-data/placement/", "availability-zone\nregion"),
        ("meta-data/tags/instance", "deeplearning:role"),
        ("meta-data/tags/instance/deeplearning:role", "worker"),
        ("meta-data/iam/security-credentials/", "WorkerRole"),
        ("meta-data/public-keys/", "0=my-key"),
        ("meta-data/public-keys/0/openssh-key", KEY + "\n"),
        ("user-data", "#!/bin/bash\n"),
        ("", "dynamic/\nmeta-data/\nuser-data"),
    ],
)
def test_documents_and_listings_are_where_ec2_has_them(path, text):
    assert read(path) == text


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("user-data", {"user_data": b""}),
        ("meta-data/public-keys/", {"public_key": ""}),
        ("meta-data/iam/security-credentials/", {"role_name": ""}),
        ("meta-data/tags/instance", {"tags": {}}),
        ("meta-data/instance", {}),
        ("nothing", {}),
    ],
)
def test_a_path_without_a_value_is_absent(path, changes):
    assert read(path, **changes) is None


def test_credentials_are_fresh_and_expire():
    document = json.loads(read("meta-data/iam/security-credentials/WorkerRole"))
    assert (document["AccessKeyId"], document["SecretAccessKey"], document["Token"]) == ("AKIA", "secret", "token")
    assert document["LastUpdated"] == "2026-01-02T03:04:05Z"
    assert document["Expiration"] == "2026-01-02T09:04:05Z"


def test_the_private_name_follows_the_region():
    assert private_dns_name(make_machine()) == "ip-10-0-128-37.eu-west-1.compute.internal"
    assert private_dns_name(make_machine(region="us-east-1")) == "ip-10-0-128-37.ec2.internal"


@pytest.mark.parametrize("token", [None, "", "invented"])
def test_nothing_is_answered_without_a_token(token):
    assert Session().get("/latest/meta-data/instance-id", token) == (HTTPStatus.UNAUTHORIZED, b"")


def test_a_token_opens_every_version_of_the_service():
    session = Session()
    for version in ("latest", "2021-07-15"):
        status, body = session.get(f"/{version}/meta-data/instance-id", session.token())
        assert (status, body) == (HTTPStatus.OK, b"i-0123456789abcdef0")
    assert session.get("/1.0/meta-data/instance-id", session.token())[0] is HTTPStatus.NOT_FOUND


def test_a_token_expires():
    session = Session()
    token = session.token("60")
    session.time += timedelta(seconds=59)
    assert session.get("/latest/user-data", token)[0] is HTTPStatus.OK
    session.time += timedelta(seconds=1)
    assert session.get("/latest/user-data", token)[0] is HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize("seconds", [None, "", "0", "21601", "-1", "an hour"])
def test_a_token_needs_a_lifetime_of_at_most_six_hours(seconds):
    assert Session().issue_token(seconds, None)[0] is HTTPStatus.BAD_REQUEST


@pytest.mark.fault(50)
def test_an_interruption_exists_only_while_it_is_announced():
    session = Session()
    path = "/latest/meta-data/spot/instance-action"
    assert session.get(path, session.token())[0] is HTTPStatus.NOT_FOUND
    session.announce_interruption(120)
    assert json.loads(session.get(path, session.token())[1]) == {"action": "terminate", "time": "2026-01-02T03:06:05Z"}
    assert session.get("/latest/meta-data/spot/termination-time", session.token())[1] == b"2026-01-02T03:06:05Z"
    assert session.get("/latest/meta-data/spot/", session.token())[1] == b"instance-action\ntermination-time"
    session.clear_announcements()
    assert session.get(path, session.token())[0] is HTTPStatus.NOT_FOUND


@pytest.mark.fault(50)
def test_a_rebalance_is_recommended_apart_from_an_interruption():
    session = Session()
    path = "/latest/meta-data/events/recommendations/rebalance"
    session.announce_interruption(120)
    assert session.get(path, session.token())[0] is HTTPStatus.NOT_FOUND
    session.announce_rebalance()
    assert json.loads(session.get(path, session.token())[1]) == {"noticeTime": "2026-01-02T03:04:05Z"}


@pytest.mark.fault(52)
def test_a_refusing_service_refuses_good_tokens_until_it_is_mended():
    session = Session()
    token = session.token()
    session.fault = MetadataFault(is_refusing=True)
    assert session.get("/latest/user-data", token)[0] is HTTPStatus.UNAUTHORIZED
    session.fault = MetadataFault()
    assert session.get("/latest/user-data", token)[0] is HTTPStatus.OK


def test_a_proxy_gets_no_token():
    assert Session().issue_token("60", "10.0.0.9")[0] is HTTPStatus.FORBIDDEN


def test_boto3_finds_the_roles_credentials(server):
    fetcher = InstanceMetadataFetcher(base_url=server, env={})
    credentials = InstanceMetadataProvider(iam_role_fetcher=fetcher).load()
    assert (credentials.access_key, credentials.secret_key, credentials.token) == ("AKIA", "secret", "token")


def test_version_1_of_the_service_is_refused(server):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{server}/latest/meta-data/instance-id", timeout=GENEROUS_SECONDS)  # noqa: S310 - loopback
    assert caught.value.code == HTTPStatus.UNAUTHORIZED
