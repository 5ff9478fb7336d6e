"""Liveness: real sockets on loopback addresses, where a listener with a full backlog does not respond."""

import contextlib
import errno
import resource
import selectors
import socket
import threading
from pathlib import Path

import pytest

from deeplearning_agent.membership import liveness
from deeplearning_agent.membership.liveness import STEPS, Watch, find_silent
from tests.unit.node_lab import StillClock


@contextlib.contextmanager
def black_hole(address="0.0.0.0"):  # noqa: S104 - loopback addresses are many, and it answers nobody
    """Yield a port on which Linux drops every further connection: its queue is full and nobody accepts."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind((address, 0))
        server.listen(0)
        port = server.getsockname()[1]
        for _ in range(5):
            client = stack.enter_context(socket.socket())
            client.settimeout(0.2)
            try:
                client.connect(("127.0.0.1" if address == "0.0.0.0" else address, port))  # noqa: S104
            except TimeoutError:
                break
        else:
            pytest.fail("the backlog of 0 took five connections; this kernel needs another black hole")
        yield port


@contextlib.contextmanager
def listener(address):
    with socket.socket() as server:
        server.bind((address, 0))
        server.listen(10)
        yield server.getsockname()[1]


@pytest.fixture
def refused():
    """A port on which nobody listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def test_the_first_port_is_one_on_which_nobody_listens_and_the_second_that_of_logins():
    assert STEPS == ((9, 1.0), (22, 1.5))


def test_a_refusal_is_an_answer():
    assert find_silent(["127.0.0.2", "127.0.0.3"]) == set()


def test_an_accepted_connection_is_an_answer():
    with listener("127.0.0.2") as port:
        assert find_silent(["127.0.0.2"], steps=[(port, 0.5)]) == set()


@pytest.mark.fault(44, 45)
def test_a_node_without_a_response_on_any_port_is_silent():
    with black_hole("127.0.0.3") as first, black_hole("127.0.0.3") as second:
        assert find_silent(["127.0.0.2", "127.0.0.3"], steps=[(first, 0.1), (second, 0.1)]) == {"127.0.0.3"}


def test_a_node_that_is_silent_on_the_first_port_is_asked_on_the_second(refused):
    with black_hole("127.0.0.3") as first, listener("127.0.0.3") as second:
        assert find_silent(["127.0.0.3"], steps=[(first, 0.1), (second, 0.5)]) == set()
        assert find_silent(["127.0.0.3"], steps=[(first, 0.1), (refused, 0.5)]) == set()


def test_a_node_that_responds_on_the_first_port_is_not_asked_on_the_second(refused, monkeypatch):
    asked = []
    connect = liveness.start_connecting
    monkeypatch.setattr(liveness, "start_connecting", lambda *where: asked.append(where) or connect(*where))
    find_silent(["127.0.0.2"], steps=[(refused, 0.5), (22, 0.5)])
    assert asked == [("127.0.0.2", refused)]


@pytest.mark.fault(44)
@pytest.mark.parametrize("status", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT])
def test_a_network_that_says_there_is_nobody_means_silence(monkeypatch, status):
    monkeypatch.setattr(liveness, "start_connecting", lambda *_: (status, None))
    assert find_silent(["127.0.0.2"]) == {"127.0.0.2"}


def test_a_thousand_silent_nodes_are_found_at_once():
    addresses = [f"127.1.{index // 250}.{index % 250 + 1}" for index in range(1000)]
    with black_hole() as port:
        assert find_silent([*addresses, "127.0.0.2"], steps=[(port, 0.5)]) == {*addresses, "127.0.0.2"}
    assert find_silent(addresses, steps=[(port, 0.5)]) == set()


@contextlib.contextmanager
def open_files_limited_to(count):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def count_open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_few_open_files_make_more_rounds_of_fewer_sockets(monkeypatch):
    addresses = [f"127.2.0.{index}" for index in range(1, 121)]
    connect, most, before = liveness.start_connecting, [], count_open_files()

    def count(*where):
        most.append(count_open_files())
        return connect(*where)

    monkeypatch.setattr(liveness, "start_connecting", count)
    with black_hole() as port:
        with open_files_limited_to(liveness.KEPT_DESCRIPTORS + 50):
            assert find_silent(addresses, steps=[(port, 0.1)]) == set(addresses)
        assert max(most) - before <= 60
    assert count_open_files() == before


def test_when_others_took_the_sockets_what_is_left_is_used(monkeypatch):
    addresses = [f"127.2.0.{index}" for index in range(1, 121)]
    monkeypatch.setattr(liveness, "count_room", lambda: 10_000)
    with black_hole() as port, open_files_limited_to(count_open_files() + 30):
        assert find_silent(addresses, steps=[(port, 0.1)]) == set(addresses)


@pytest.mark.parametrize("status", [0, errno.ECONNREFUSED, errno.ECONNRESET])
def test_a_response_that_comes_at_once_is_an_answer(monkeypatch, status):
    monkeypatch.setattr(liveness, "start_connecting", lambda *_: (status, None))
    assert find_silent(["127.0.0.2"]) == set()


@pytest.mark.parametrize(("error", "status"), [(OSError(errno.EACCES, "no"), errno.EACCES), (OSError(), errno.EMFILE)])
def test_a_socket_that_cannot_be_made_has_its_error_number(monkeypatch, error, status):
    def refuse(*_kind):
        raise error

    monkeypatch.setattr(liveness.socket, "socket", refuse)
    assert liveness.start_connecting("127.0.0.2", 9) == (status, None)


def test_without_any_socket_nobody_is_called_silent(monkeypatch, caplog):
    monkeypatch.setattr(liveness, "start_connecting", lambda *_: (errno.EMFILE, None))
    assert find_silent(["127.0.0.2"]) == set()
    assert caplog.messages == ["cannot probe 127.0.0.2: Too many open files"]


@pytest.mark.parametrize(("limit", "room"), [(resource.RLIM_INFINITY, liveness.MOST_SOCKETS), (10, 1), (200, None)])
def test_room_is_left_for_other_files(monkeypatch, limit, room):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert liveness.count_room() == (room or 200 - liveness.KEPT_DESCRIPTORS)


def test_a_node_has_the_whole_time_out_to_respond(monkeypatch):
    sweep = liveness._Sweep(["127.0.0.2"], 9, 5.0, StillClock())
    with selectors.DefaultSelector() as selector, socket.socket() as pending:
        monkeypatch.setattr(liveness, "start_connecting", lambda *_: (errno.EINPROGRESS, pending))
        sweep.start(selector)
    assert list(sweep.pending.values()) == [("127.0.0.2", 1005.0)]


@pytest.mark.filterwarnings("error")  # A socket that only the garbage collector closes warns.
def test_it_takes_one_thread_and_leaves_nothing_open(refused):
    addresses = [f"127.0.1.{index}" for index in range(1, 200)]
    with black_hole() as port:
        before = (threading.active_count(), count_open_files())
        find_silent(addresses, steps=[(port, 0.1), (refused, 0.1)])
        assert (threading.active_count(), count_open_files()) == before


def test_an_empty_cluster_is_not_queried():
    assert find_silent([]) == set()


# --- Strikes ------------------------------------------------------------------------------------------


def watch(*rounds):
    """Return a watch for which each round has these silent addresses."""
    rounds = iter(rounds)
    return Watch(lambda addresses: set(next(rounds)) & set(addresses))


@pytest.mark.fault(44, 45)
def test_two_silent_rounds_in_a_row_make_a_node_gone():
    seen = watch("a", "ab", "b")
    assert [seen.find_silent("abc") for _ in range(3)] == [set(), {"a"}, {"b"}]


def test_a_node_that_left_and_returns_starts_again():
    seen = watch("a", "a", "a")
    assert [seen.find_silent(addresses) for addresses in ("a", "b", "a")] == [set(), set(), set()]


def test_nodes_that_were_silent_in_the_last_round_are_listed_before_they_count_as_gone():
    seen = watch("ab", "b")
    seen.find_silent("abc")
    assert seen.silent == {"a", "b"}
    seen.find_silent("abc")
    assert seen.silent == {"b"}
