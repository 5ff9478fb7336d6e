"""Instance metadata, version 2, of one node."""

import contextlib
import http.server
import threading

import pytest


class MetadataServer:
    """Instance metadata, version 2; refuses so many requests first."""

    def __init__(self, clock):
        self.refusals = 0
        self.clock = clock
        metadata = self
        blocks = "/latest/meta-data/network/interfaces/macs/02:00:0a:01:02:03/vpc-ipv4-cidr-blocks"
        texts = {
            "/latest/meta-data/instance-id": "i-0123456789abcdef0",
            "/latest/meta-data/local-ipv4": "10.1.2.3",
            "/latest/meta-data/mac": "02:00:0a:01:02:03",
            blocks: "10.1.0.0/16\n10.9.0.0/16",
        }

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                metadata.refusals -= 1
                is_put = self.command == "PUT" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
                is_known = is_put or self.headers["X-aws-ec2-metadata-token"] == "token"
                text = b"token" if is_put else texts.get(self.path, "").encode()
                self.send_response(200 if is_known and metadata.refusals < 0 else 401)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = answer  # noqa: N815 - the names that http.server calls

            def log_message(self, *_arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def imds(ticking_clock):
    with contextlib.closing(MetadataServer(ticking_clock())) as server:
        yield server
