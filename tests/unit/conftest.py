"""The AWS of the unit tests: moto in process, or a server for what tests start as processes; empty before each test."""

import contextlib
import logging
import threading
import urllib.request

import pytest

from tests.real_time import GENEROUS_SECONDS
from tests.unit.loopback import SignalServer


@pytest.fixture(scope="session", autouse=True)
def _without_images():
    """Keep moto from making 1,300 images anew at each reset, a quarter of a second of CPU; no test reads one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        yield


@pytest.fixture(scope="session")
def aws_server_url():
    """Start moto on a free port of this machine; return its URL."""
    with pytest.MonkeyPatch.context() as patch:
        from moto.moto_server import threaded_moto_server  # noqa: PLC0415 - it takes a second, and few tests need it

        class OneAtATime(threaded_moto_server.DomainDispatcherApplication):
            """Answers one call at a time: moto iterates over sets and dictionaries that other calls change."""

            turn = threading.Lock()

            def __call__(self, environ, start_response):
                with self.turn:
                    return list(super().__call__(environ, start_response))

        patch.setattr(threaded_moto_server, "DomainDispatcherApplication", OneAtATime)
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        server = threaded_moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        yield "http://{}:{}".format(*server.get_host_and_port())
        server.stop()


@pytest.fixture
def aws_server(aws_server_url, monkeypatch):
    """Lead every AWS client of the test to an empty moto; return its URL."""
    request = urllib.request.Request(f"{aws_server_url}/moto-api/reset", method="POST")  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=GENEROUS_SECONDS):  # noqa: S310 - loopback
        monkeypatch.setenv("AWS_ENDPOINT_URL", aws_server_url)
    return aws_server_url


@pytest.fixture
def aws():
    """Answer every AWS call of this process by an empty moto, without HTTP."""
    from tests.unit.local_aws import empty_aws  # noqa: PLC0415 - moto takes a second, and few tests need it

    with empty_aws():
        yield


@pytest.fixture
def signals():
    with contextlib.closing(SignalServer()) as server:
        yield server
