"""One node at a time makes what is shared, and a dead node's claim does not last."""

import os
import threading

import pytest

from deeplearning_node.deadline import Clock
from deeplearning_provision import lease
from deeplearning_provision.lease import STALE_SECONDS, Lease
from tests.real_time import GENEROUS_SECONDS


class SkippingClock(Clock):
    """A clock on which waiting takes no time of the test; what happens meanwhile is the test's."""

    def __init__(self, *happenings):
        self.now = 1000.0
        self.happenings = list(happenings)

    def read(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds
        if self.happenings:
            self.happenings.pop(0)()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shared" / "digest.lock"


def hold(path, instance, clock, is_done=lambda: False, waits=None):
    found = [] if waits is None else waits
    return Lease(path, instance, clock).hold(is_done, found.append)


@pytest.mark.parametrize("is_done", [False, True])
def test_the_first_one_owns_it_and_gives_it_back_and_completed_work_takes_none(path, is_done):
    with hold(path, "i-1", SkippingClock(), lambda: is_done) as is_left:
        assert is_left is not is_done
        assert is_done or '"i-1"' in path.read_text()
    assert not path.exists()


def test_another_one_waits_until_it_is_done(path):
    done, waits = [], []
    with hold(path, "i-1", SkippingClock()):
        clock = SkippingClock(lambda: None, lambda: done.append(True))
        with hold(path, "i-2", clock, lambda: bool(done), waits) as is_left:
            assert not is_left
    assert waits == ["i-1", "i-1"]


def test_a_living_owners_claim_is_not_taken(path):
    """It is touched at every second look, for longer than a dead one's claim lasts."""
    path.parent.mkdir()
    path.write_text('{"instance": "i-1"}')
    clock, done = SkippingClock(), []

    def touch():
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))

    clock.happenings = [lambda: None, touch] * int(STALE_SECONDS) + [lambda: done.append(True)]
    with hold(path, "i-2", clock, lambda: bool(done)) as is_left:
        assert not is_left
    assert clock.now - 1000 > 2 * STALE_SECONDS


@pytest.mark.parametrize(
    ("text", "is_own"),
    [('{"instance": "i-1"}', False), ("", False), ("half of", False), ("[]", False), ('{"instance": "i-2"}', True)],
    ids=["another node", "empty", "torn", "no document", "a process of this node"],
)
def test_a_dead_owners_claim_is_taken_after_a_while_and_at_once_on_its_own_node(path, text, is_own):
    path.parent.mkdir()
    path.write_text(text)
    clock = SkippingClock()
    with hold(path, "i-2", clock) as is_left:
        assert is_left
        assert (clock.now == 1000) if is_own else (clock.now - 1000 >= STALE_SECONDS)
    assert list(path.parent.iterdir()) == []


def test_an_owner_touches_its_claim(path, monkeypatch):
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.001)
    with hold(path, "i-1", SkippingClock()):
        os.utime(path, ns=(0, 0))
        changed = threading.Event()
        while path.stat().st_mtime_ns == 0:
            changed.wait(0.001)


def test_an_owner_learns_that_its_lease_was_taken_and_leaves_the_other_claim(path, monkeypatch):
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.001)
    own = Lease(path, "i-1", SkippingClock())
    with own.hold(lambda: False, lambda _: None):
        assert not own.is_lost()
        path.write_text('{"instance": "i-2"}')
        assert own.lost.wait(GENEROUS_SECONDS)
    assert '"i-2"' in path.read_text()


def test_of_many_one_owns_it(path):
    owners, done, lock = [], [], threading.Lock()

    class ShortClock(Clock):
        def wait(self, seconds):
            super().wait(0.001)

    def make(instance):
        with Lease(path, instance, ShortClock()).hold(lambda: bool(done), lambda _: None) as is_left:
            if is_left:
                with lock:
                    owners.append(instance)
                    done.append(True)

    threads = [threading.Thread(target=make, args=(f"i-{number}",)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(owners) == 1
