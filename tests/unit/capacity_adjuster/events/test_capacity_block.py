"""The end of a capacity block is told to the nodes that run in it, and to nobody else."""

import pytest
from edge_checks import STATE, handle_warning, warn
from hypothesis import given
from hypothesis import strategies as st

from capacity_adjuster.events.capacity_block import ExpiryWarning, announce_expiry, read_warning
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.settings import AdjusterSettings

NOTICE = "capacity block cr-ours ends at 2026-11-22T11:30:00Z; EC2 terminates its instances up to 30 minutes earlier"


@pytest.mark.parametrize("kind", ["Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"])
def test_either_wording_of_the_warning_becomes_the_notice(kind):
    outcome, written, notifications = handle_warning(warn("cr-ours", kind))
    assert outcome == f"notice: {NOTICE}"
    state = ClusterState.from_item(written[-1]["Item"])
    assert state == STATE.advance(Phase.LAUNCHED, notice=NOTICE)
    assert [notification.generation for notification in notifications] == [1]


@pytest.mark.fault(17)
def test_a_warning_that_comes_twice_is_written_once():
    known = STATE.advance(Phase.LAUNCHED, notice=NOTICE)
    outcome, written, notifications = handle_warning(warn("cr-ours"), known)
    assert (outcome, written, len(notifications)) == ("the notice was announced before", [], 1)


@pytest.mark.parametrize("state", [None, STATE.advance(Phase.FAILED)])
def test_without_a_cluster_no_event_is_sent(state):
    assert handle_warning(warn("cr-ours"), state) == ("there is no cluster to notify", [], [])


def test_a_cluster_in_no_block_hears_of_none():
    outcome = announce_expiry(ExpiryWarning("cr-1", ""), reservation_id="", records=None, notify_master=None)
    assert outcome == "no node of this cluster is in cr-1"


def test_a_warning_without_its_end_says_about_when():
    assert "ends in about 40 minutes" in ExpiryWarning("cr-1", "").notice


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


def test_the_block_travels_through_the_environment():
    settings = AdjusterSettings("c", "t", "q", "u", 1, 10, "cr-1")
    assert AdjusterSettings.from_environment(settings.to_environment()) == settings
    assert "DEEPLEARNING_CAPACITY_RESERVATION_ID" not in AdjusterSettings("c", "t", "q", "u", 1, 10).to_environment()
