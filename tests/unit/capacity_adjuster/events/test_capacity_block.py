"""The end of a capacity block is told to the nodes that run in it, and to nobody else."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity_adjuster import handler
from capacity_adjuster.aws.state_table import StateTable
from capacity_adjuster.events.capacity_block import ExpiryWarning, announce_expiry, read_warning
from capacity_adjuster.reconcile.adapters import Adapters
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.settings import AdjusterSettings

NOTICE = "capacity block cr-ours ends at 2026-11-22T11:30:00Z; EC2 terminates its instances up to 30 minutes earlier"

SETTINGS = AdjusterSettings("training", "state", "queue", "url", 1, 10, "cr-ours")
STATE = ClusterState("training", 1, 1, Phase.LAUNCHED, 2, ("i-00000001", "i-00000002"))


class Table:
    """Table of one item; it keeps what it is asked to write."""

    def __init__(self, item):
        self.written = []
        self.item = item

    def put_item(self, **request):
        self.written.append(request)

    def get_item(self, **_request):
        return {"Item": self.item}


def warn(reservation, kind="Capacity Block Reservation Expiration Warning"):
    """Return EC2's warning as EventBridge delivers it."""
    return {
        "version": "0",
        "detail-type": kind,
        "source": "aws.ec2",
        "resources": [f"arn:aws:ec2:us-east-1:123456789012:capacity-reservation/{reservation}"],
        "detail": {"capacity-reservation-id": reservation, "end-date": "2026-11-22T11:30:00Z"},
    }


@pytest.fixture
def handle_warning(monkeypatch):
    """Let the handler meet a warning; return its outcome, what it wrote and its notifications."""

    def handle(event, state=STATE):
        table, notifications = Table(state.to_item() if state else {}), []
        records = StateTable(table, "state", "training")
        adapters = Adapters(None, records, notifications.append, None, None, None)
        monkeypatch.setattr(handler, "make_adapters", lambda *_: adapters)
        for name, value in SETTINGS.to_environment().items():
            monkeypatch.setenv(name, value)
        context = mock.Mock(get_remaining_time_in_millis=lambda: 60_000)
        return handler.handle(event, context)["outcome"], table.written, notifications

    return handle


@pytest.mark.parametrize("kind", ["Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"])
def test_either_wording_of_the_warning_becomes_the_notice(handle_warning, kind):
    outcome, written, notifications = handle_warning(warn("cr-ours", kind))
    assert outcome == f"notice: {NOTICE}"
    state = ClusterState.from_item(written[-1]["Item"])
    assert state == STATE.advance(Phase.LAUNCHED, notice=NOTICE)
    assert [notification.generation for notification in notifications] == [1]


@pytest.mark.fault(17)
def test_a_warning_that_comes_twice_is_written_once(handle_warning):
    known = STATE.advance(Phase.LAUNCHED, notice=NOTICE)
    outcome, written, notifications = handle_warning(warn("cr-ours"), known)
    assert (outcome, written, len(notifications)) == ("the notice was announced before", [], 1)


@pytest.mark.parametrize(
    ("warning", "state", "outcome"),
    [
        (warn("cr-ours"), None, "there is no cluster to notify"),
        (warn("cr-ours"), STATE.advance(Phase.FAILED), "there is no cluster to notify"),
        (warn("cr-of-another-cluster"), STATE, "no node of this cluster is in cr-of-another-cluster"),
    ],
)
def test_nothing_is_written_or_sent_without_a_cluster_in_the_block(handle_warning, warning, state, outcome):
    assert handle_warning(warning, state) == (outcome, [], [])


def test_a_cluster_in_no_block_ignores_every_warning_even_one_without_its_end():
    warning = ExpiryWarning("cr-1", "")
    assert "ends in about 40 minutes" in warning.notice
    outcome = announce_expiry(warning, reservation_id="", records=None, notify_master=None)
    assert outcome == "no node of this cluster is in cr-1"


class Busy:
    """Records of which another writer is always faster."""

    def read_state(self):
        return STATE

    def write_state(self, state):
        return False


@pytest.mark.fault(36)
def test_a_writer_that_always_loses_lets_lambda_try_again():
    with pytest.raises(RuntimeError, match="another writer was faster 5 times"):
        announce_expiry(ExpiryWarning("cr-1", ""), reservation_id="cr-1", records=Busy(), notify_master=None)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@pytest.mark.fault(22)
@given(
    st.fixed_dictionaries(
        {"source": st.just("aws.ec2") | anything, "detail-type": st.just(warn("c")["detail-type"]) | anything},
        optional={
            "detail": anything
            | st.fixed_dictionaries({}, optional={"capacity-reservation-id": anything, "end-date": anything})
        },
    )
    | anything
)
def test_any_event_is_read_as_a_warning_or_as_none(event):
    found = read_warning(event)
    assert found is None or (found.reservation_id and len(found.notice) < 300)
