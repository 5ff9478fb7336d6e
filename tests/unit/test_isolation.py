"""The tests' own walls hold."""

import contextlib
import importlib.util
import os
import socket
import threading
import urllib.request
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto.core.botocore_stubber import BotocoreStubber

from tests.unit import local_aws

TESTS = Path(__file__).parents[1]
OUTSIDE = "192.0.2.1"
"""An address of the range kept for documentation."""


def _load(path):
    spec = importlib.util.spec_from_file_location(f"loaded_{path.parent.name}_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


walls = _load(TESTS / "conftest.py")
rehearsal = _load(TESTS / "rehearsal" / "conftest.py")


def _connect():
    with socket.socket() as client:
        client.connect((OUTSIDE, 80))


def _connect_ex():
    with socket.socket() as client:
        client.connect_ex((OUTSIDE, 80))


def _send_datagram():
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(b"x", (OUTSIDE, 53))


def _look_up():
    socket.getaddrinfo("example.com", 80)


def _fetch():
    with urllib.request.urlopen(f"http://{OUTSIDE}/"):
        pass


@pytest.mark.parametrize("attempt", [_connect, _connect_ex, _send_datagram, _look_up, _fetch])
def test_no_test_reaches_an_address_outside_of_this_machine(attempt):
    with pytest.raises(BaseException, match="tests may reach this machine only, got ") as caught:
        attempt()
    assert type(caught.value).__name__ == "BlockedAddressError"
    assert not isinstance(caught.value, Exception)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "10.0.3.4", ""])
def test_this_machine_and_the_lab_are_allowed(host):
    assert walls.is_allowed((host, 80))


@pytest.mark.parametrize("host", ["169.254.169.254", "8.8.8.8", "2001:db8::1", "sqs.us-east-1.amazonaws.com"])
def test_instance_metadata_and_the_world_are_not_allowed(host):
    assert not walls.is_allowed((host, 80))


def test_an_aws_client_without_a_server_finds_nobody():
    with pytest.raises(EndpointConnectionError):
        boto3.client("sqs").list_queues()


def test_the_users_own_aws_settings_are_gone(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("DEEPLEARNING_WORKERS_COUNT", "7")
    with pytest.MonkeyPatch.context() as patch:
        walls.pin_environment(patch)
        left = {name for name in os.environ if name.startswith(("AWS_", "DEEPLEARNING_"))}
        assert left - walls.KEPT_VARIABLES == set(walls.PINNED_ENVIRONMENT)
    assert os.environ["AWS_PROFILE"] == "production"


def test_the_server_is_empty_in_each_test(aws_server):
    sqs = boto3.client("sqs")
    assert "QueueUrls" not in sqs.list_queues()
    sqs.create_queue(QueueName="left-behind")


def test_the_server_is_empty_in_each_test_again(aws_server):
    assert "QueueUrls" not in boto3.client("sqs").list_queues()


def test_moto_takes_the_next_call_of_another_thread_when_the_last_has_its_answer(aws, monkeypatch):
    both, met = threading.Barrier(2), []

    def meet(_stubber, request):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)
            met.append(request)

    monkeypatch.setattr(local_aws, "_dispatch", meet)
    threads = [threading.Thread(target=BotocoreStubber().process_request, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == []


def test_rehearsals_fail_without_root():
    with pytest.raises(pytest.fail.Exception, match="user must be root, got id 1000"):
        rehearsal.demand_root(1000, {})


def test_rehearsals_are_skipped_without_root_only_when_told():
    with pytest.raises(pytest.fail.Exception):
        rehearsal.demand_root(1000, {rehearsal.SKIP_VARIABLE: "0"})
    with pytest.raises(pytest.skip.Exception):
        rehearsal.demand_root(1000, {rehearsal.SKIP_VARIABLE: "1"})


def test_root_rehearses():
    rehearsal.demand_root(0, {rehearsal.SKIP_VARIABLE: "1"})
