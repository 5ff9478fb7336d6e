"""Instance metadata, version 2, of one node."""

import contextlib

import pytest

from tests.unit.loopback import LoopbackServer, respond


class MetadataServer(LoopbackServer):
    """Instance metadata, version 2; refuses so many requests first."""

    def __init__(self, clock):
        super().__init__()
        self.refusals = 0
        self.clock = clock
        blocks = "/latest/meta-data/network/interfaces/macs/02:00:0a:01:02:03/vpc-ipv4-cidr-blocks"
        self.texts = {
            "/latest/meta-data/instance-id": "i-0123456789abcdef0",
            "/latest/meta-data/local-ipv4": "10.1.2.3",
            "/latest/meta-data/mac": "02:00:0a:01:02:03",
            blocks: "10.1.0.0/16\n10.9.0.0/16",
        }

    def answer(self, request, _body):
        self.refusals -= 1
        is_put = request.command == "PUT" and request.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        is_known = is_put or request.headers["X-aws-ec2-metadata-token"] == "token"
        text = "token" if is_put else self.texts.get(request.path, "")
        respond(request, 200 if is_known and self.refusals < 0 else 401, text.encode())


@pytest.fixture
def imds(ticking_clock):
    with contextlib.closing(MetadataServer(ticking_clock())) as server:
        yield server
