"""
Liveness of nodes, and the monitor that adds up its rounds and inspections.

Sockets are real ones on loopback addresses, where a listener with a full backlog does not respond.
"""

import contextlib
import errno
import resource
import selectors
import socket
import threading
from pathlib import Path

import pytest
from membership_bench import Bench, member, name

from deeplearning_agent.membership import liveness, member_monitor
from deeplearning_agent.membership.liveness import STEPS, Watch, find_silent
from deeplearning_agent.membership.member_monitor import MemberMonitor
from tests.real_time import GENEROUS_SECONDS
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


def test_a_refusal_or_an_accepted_connection_is_an_answer():
    assert find_silent(["127.0.0.2", "127.0.0.3"]) == set()
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
@pytest.mark.parametrize(
    ("status", "silent"),
    [
        *((status, {"127.0.0.2"}) for status in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT)),
        *((status, set()) for status in (0, errno.ECONNREFUSED, errno.ECONNRESET)),
    ],
)
def test_a_network_that_says_there_is_nobody_means_silence_and_any_response_is_an_answer(monkeypatch, status, silent):
    monkeypatch.setattr(liveness, "start_connecting", lambda *_: (status, None))
    assert find_silent(["127.0.0.2"]) == silent


def test_a_thousand_silent_nodes_are_found_at_once():
    addresses = [f"127.1.{index // 250}.{index % 250 + 1}" for index in range(1000)]
    with black_hole() as port:
        assert find_silent([*addresses, "127.0.0.2"], steps=[(port, 0.5)]) == {*addresses, "127.0.0.2"}
    assert find_silent(addresses, steps=[(port, 0.5)]) == set()
    assert find_silent([]) == set()


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


MANY = [f"127.2.0.{index}" for index in range(1, 121)]


def test_few_open_files_make_more_rounds_of_fewer_sockets(monkeypatch):
    connect, most, before = liveness.start_connecting, [], count_open_files()

    def count(*where):
        most.append(count_open_files())
        return connect(*where)

    monkeypatch.setattr(liveness, "start_connecting", count)
    with black_hole() as port:
        with open_files_limited_to(liveness.KEPT_DESCRIPTORS + 50):
            assert find_silent(MANY, steps=[(port, 0.1)]) == set(MANY)
        assert max(most) - before <= 60
    assert count_open_files() == before


def test_when_others_took_the_sockets_what_is_left_is_used(monkeypatch):
    monkeypatch.setattr(liveness, "count_room", lambda: 10_000)
    with black_hole() as port, open_files_limited_to(count_open_files() + 30):
        assert find_silent(MANY, steps=[(port, 0.1)]) == set(MANY)


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


# --- Rounds -------------------------------------------------------------------------------------------


@pytest.mark.fault(44, 45)
@pytest.mark.parametrize(
    ("rounds", "members", "silent"),
    [
        (("a", "ab", "b"), ("abc",) * 3, [set(), {"a"}, {"b"}]),
        (("a", "b", "a", "a"), ("ab",) * 4, [set(), set(), set(), {"a"}]),
        (("a", "a", "a"), ("a", "b", "a"), [set(), set(), set()]),
    ],
    ids=["one after the other", "not in a row", "a node that left and returns starts again"],
)
def test_two_silent_rounds_in_a_row_make_a_node_gone(rounds, members, silent):
    following = iter(rounds)
    watch = Watch(lambda addresses: set(next(following)) & set(addresses))
    for addresses, mute, gone in zip(members, rounds, silent, strict=True):
        assert watch.find_silent(addresses) == gone
        assert watch.silent == set(mute) & set(addresses)


# --- The monitor --------------------------------------------------------------------------------------

MEMBERS = [member(number) for number in range(3)]


class World:
    """A monitor on a clock that stands, with the nodes that are silent and those that an inspection finds unhealthy."""

    def __init__(self):
        self.bench = Bench(workers=0)
        self.monitor = MemberMonitor(self.bench.node)
        self.mute = set()
        self.causes = {}
        self.inspected = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.monitor._liveness = Watch(lambda addresses: self.mute & set(addresses))

    def inspect(self, node, members):
        self.inspected.append((node, members))
        self.goes_on.wait(GENEROUS_SECONDS)
        return dict(self.causes)

    def probe(self, members=MEMBERS, others=(), *, after=0):
        self.bench.clock.now += after
        found = self.monitor.probe(members, others)
        if self.monitor._inspection and self.goes_on.is_set():
            self.monitor._inspection.join()
        return found


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr(member_monitor, "find_unhealthy", world.inspect)
    return world


def test_nodes_are_inspected_once_a_minute(world):
    for seconds, times in ((0, 0), (59, 0), (1, 1), (59, 1), (1, 2)):
        world.probe(after=seconds)
        assert len(world.inspected) == times
    assert world.inspected[0] == (world.bench.node, tuple(MEMBERS))
    assert world.monitor._inspection.daemon, "the end of the agent waits for no inspection"


def test_a_master_alone_inspects_nobody(world):
    world.probe(MEMBERS[:1], after=60)
    assert world.inspected == []
    world.probe(MEMBERS[:2])
    assert len(world.inspected) == 1


def test_an_inspection_that_takes_long_is_not_overtaken(world):
    world.goes_on.clear()
    world.probe(after=60)
    world.probe(after=60)
    world.goes_on.set()
    world.monitor._inspection.join()
    assert len(world.inspected) == 1


def test_a_worker_is_unfit_after_two_inspections_in_a_row(world):
    seen = []
    for causes in ({name(1): "gpu"}, {name(1): "disk"}, {}, {name(1): "gpu"}, {}):
        world.causes = causes
        world.probe(after=60)
        seen.append(world.probe().unfit)
    assert seen == [{}, {name(1): "disk"}, {}, {}, {}]


def test_the_silent_are_workers_and_the_unanswered_are_all_that_were_asked(world):
    other = member(7)
    world.mute = {MEMBERS[2].address, other.address}
    first, second = world.probe(others=[other]), world.probe(others=[other])
    assert (first.silent, set(second.silent)) == ({}, {name(2)})
    assert second.unanswered == {name(2), name(7)}
    assert second.has_answer
    world.mute.add(MEMBERS[1].address)
    alone = world.probe(others=[other])
    assert not alone.has_answer
    assert alone.unanswered == {name(1), name(2), name(7)}
