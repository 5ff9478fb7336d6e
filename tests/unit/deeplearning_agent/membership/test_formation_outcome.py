"""Outcome of a formation: its signals, its state record, and the replacement of a master that keeps failing."""

import email.message
import http.client
import json
import urllib.error
from dataclasses import replace

import pytest
from botocore.exceptions import EndpointConnectionError
from membership_bench import Bench, name
from model_settings import CLUSTER

from deeplearning_agent.membership import formation_outcome
from deeplearning_agent.membership.formation_outcome import SIGNAL_SECONDS, SUCCESS_FILE, FormationOutcome, is_decided
from deeplearning_agent.telemetry.log_records import read_fields
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.reason import Reason
from deeplearning_node.atomic_file import write_file

BROKEN = Reason("no GPUs", "replace it")
AWAY = EndpointConnectionError(endpoint_url="dynamodb")


def refused(status):
    return urllib.error.HTTPError("https://signal.example/", status, "no", email.message.Message(), None)


class World:
    """A master with CloudFormation and a state record that refuse what the test says, and keep the rest."""

    def __init__(self, state=None):
        self.bench = Bench(workers=0)
        self.state = state
        self.races = 0
        self.reads = 0
        self.errors = []
        self.signals = []
        self.written = []
        self.start()

    def start(self):
        self.outcome = FormationOutcome(self.bench.node, self.bench, self, lambda action: action())

    @property
    def success_file(self):
        return self.bench.node.instance_file(SUCCESS_FILE)

    def read(self):
        self.reads += 1
        if self.state is AWAY:
            raise AWAY
        return self.state

    def write(self, state):
        if self.races:
            self.races -= 1
            return False
        self.written.append(state)
        return True

    def send(self, url, body):
        assert url == "https://signal.example/"
        if self.errors:
            raise self.errors.pop(0)
        found = json.loads(body)
        assert found["UniqueId"] == CLUSTER
        self.signals.append((found["Status"], found["Reason"]))


@pytest.fixture
def make_world(monkeypatch):
    def make(state=None):
        world = World(state)
        monkeypatch.setattr(formation_outcome, "send_signal", world.send)
        return world

    return make


def state_of(phase, **changes):
    return Bench(workers=0).state(phase=phase, **changes)


LAUNCHED = state_of(Phase.LAUNCHED)


# --- Signals ------------------------------------------------------------------------------------------


def test_a_success_is_signalled_once_an_instance_with_the_reason_of_its_size(make_world):
    world = make_world()
    world.outcome.report_success(state_of(Phase.FORMED))
    assert world.success_file.read_text() == "3 of 3 nodes formed generation 1\n"
    world.start()
    world.outcome.report_success(state_of(Phase.FORMED))
    assert world.signals == [("SUCCESS", "3 of 3 nodes formed generation 1")]
    world = make_world()
    world.outcome.report_success(state_of(Phase.FORMED, reason=BROKEN))
    assert world.signals == [("SUCCESS", "3 of 3 nodes formed generation 1: no GPUs; replace it")]


@pytest.mark.parametrize("is_decided_before", [False, True])
def test_a_failure_is_signalled_once_and_leaves_no_mark(make_world, is_decided_before):
    world = make_world(LAUNCHED)
    if not is_decided_before:
        assert world.outcome.report_failure(BROKEN)
    world.outcome.report_decided_failure(state_of(Phase.FAILED, reason=BROKEN))
    assert world.signals == [("FAILURE", "no GPUs; replace it")]
    assert not world.success_file.exists()


@pytest.mark.fault(41, 64)
@pytest.mark.parametrize(
    "error", [refused(500), refused(404), OSError("away"), ValueError("bad"), http.client.BadStatusLine("x")]
)
def test_a_signal_is_sent_again_until_it_is_taken(make_world, error):
    world = make_world()
    world.errors = [error] * 3
    began = world.bench.clock.now
    world.outcome.report_decided_failure(state_of(Phase.FAILED, reason=BROKEN))
    assert len(world.signals) == 1
    assert 0 < world.bench.clock.now - began < SIGNAL_SECONDS


def test_a_signal_that_is_never_taken_is_given_up_three_times_in_all(make_world):
    world = make_world()
    world.errors = [refused(500)] * 10_000
    spent = []
    for _ in range(5):
        began = world.bench.clock.now
        world.outcome.report_success(state_of(Phase.FORMED))
        spent.append(round(world.bench.clock.now - began))
    assert spent == [SIGNAL_SECONDS] * 3 + [0, 0]
    assert world.signals == []
    assert not world.success_file.exists()


@pytest.mark.fault(64)
def test_a_url_that_has_expired_is_given_up_at_once(make_world):
    world = make_world()
    world.errors = [refused(403)] * 4
    for _ in range(5):
        world.outcome.report_decided_failure(state_of(Phase.FAILED, reason=BROKEN))
    assert (len(world.errors), world.signals) == (1, [])


def test_a_success_whose_mark_cannot_be_written_counts(make_world):
    world = make_world()
    world.success_file.mkdir(parents=True)
    (world.success_file / "file").touch()
    assert formation_outcome.signal_stack(world.bench.node, "SUCCESS", Reason("formed"))
    assert world.signals == [("SUCCESS", "formed")]


# --- The state record ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "written"),
    [
        (LAUNCHED, [replace(LAUNCHED, revision=4, phase=Phase.FAILED, reason=BROKEN)]),
        (None, [ClusterState(CLUSTER, 1, 0, Phase.FAILED, 0, (), BROKEN)]),
        (state_of(Phase.FAILED), []),
    ],
    ids=["the next revision", "the first one", "a failure that is decided stays"],
)
def test_a_failure_is_written_once_to_the_state_record(make_world, state, written):
    world = make_world(state)
    assert world.outcome.report_failure(BROKEN)
    assert world.written == written


@pytest.mark.parametrize(("races", "is_final"), [(1, True), (4, True), (5, False)])
def test_a_failure_that_others_overtake_is_written_five_times_at_most(make_world, races, is_final):
    world = make_world(LAUNCHED)
    world.races = races
    assert world.outcome.report_failure(BROKEN) is is_final
    assert world.reads == min(races + 1, 5)
    assert len(world.written) == is_final


def test_a_state_that_cannot_be_read_leaves_the_failure_open(make_world, caplog):
    world = make_world(AWAY)
    assert world.outcome.report_failure(BROKEN) is False
    assert world.signals == [("FAILURE", "no GPUs; replace it")]
    assert caplog.messages == [f"could not write the state item: {AWAY}"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, False),
        (LAUNCHED, False),
        (state_of(Phase.PUBLISHED), False),
        (state_of(Phase.PUBLISHED, has_formed=True), True),
        (state_of(Phase.FORMED, has_formed=False), True),
        (state_of(Phase.FAILED), True),
    ],
)
def test_a_cluster_is_decided_once_it_has_formed_or_failed(state, expected):
    assert is_decided(state) is expected


# --- A master that keeps failing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "pauses", "replaced"),
    [
        (Phase.FORMED, (0, 900), 0),
        (Phase.FORMED, (0, 0, 899), 0),
        (Phase.FORMED, (0, 0, 900), 1),
        (Phase.FORMED, (0, 450, 450), 1),
        (Phase.FORMED, (0, 899, 0, 1), 1),
        (Phase.PUBLISHED, (900,) * 4, 0),
    ],
)
def test_a_master_is_replaced_after_three_failures_of_a_formed_cluster_and_a_quarter_of_an_hour(
    make_world, caplog, phase, pauses, replaced
):
    world = make_world(state_of(phase))
    write_file(world.success_file, "formed\n")
    for pause in pauses:
        assert world.bench.ordered == []
        world.bench.clock.now += pause
        assert world.outcome.report_failure(BROKEN) is (phase is not Phase.FORMED)
    assert world.bench.ordered == [name(0)] * replaced
    reason = BROKEN.prefix(f"the master {name(0)} cannot prepare itself and is replaced: ")
    told = ClusterEvent(kind=EventKind.DEGRADED, cluster=CLUSTER, generation=1, nodes=3, reason=reason)
    fields = [read_fields(record) for record in caplog.records]
    assert [(found.event, found.is_urgent) for found in fields] == [(told, True)] * replaced
    assert [found.details for found in fields] == [{"reason": reason}] * replaced
    assert world.signals == []


def test_a_refused_replacement_is_requested_again_and_told_when_it_is_taken(make_world, caplog):
    world = make_world(state_of(Phase.FORMED))
    world.bench.refusals = 1
    for pause in (0, 0, 900):
        world.bench.clock.now += pause
        world.outcome.report_failure(BROKEN)
    assert world.bench.ordered == []
    assert [read_fields(record).event for record in caplog.records] == [None]
    world.outcome.report_failure(BROKEN)
    assert world.bench.ordered == [name(0)]
    assert read_fields(caplog.records[-1]).event.kind is EventKind.DEGRADED
