"""The rounds of the monitor: who is silent, who is unfit, and when it inspects the nodes."""

import threading

import pytest
from rule_checks import Bench, member, name

from deeplearning_agent.membership import member_monitor
from deeplearning_agent.membership.liveness import Watch
from deeplearning_agent.membership.member_monitor import MemberMonitor
from tests.real_time import GENEROUS_SECONDS

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
