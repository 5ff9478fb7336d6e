"""The requests of the contract against real services: a conditional table, and a signal's receiver."""

import json
import urllib.error
from dataclasses import replace

import boto3
import pytest
from botocore.exceptions import ClientError

from deeplearning_contract.cluster_state import (
    ClusterState,
    Phase,
    get_request,
    part_requests,
    put_request,
    put_requests,
)
from deeplearning_contract.document import ContractError
from deeplearning_contract.membership import Member
from deeplearning_contract.reason import Reason
from deeplearning_contract.web import send_signal, signal_body
from tests.unit.local_aws import create_state_table

STATE = ClusterState("training", 1, 1, Phase.LAUNCHED, 2, ("i-00000001",))


@pytest.fixture
def table(aws):
    client = boto3.client("dynamodb")
    create_state_table(client)
    return client


def read(table):
    item = table.get_item(**get_request("state", "training")).get("Item")
    return ClusterState.from_item(item) if item else None


def lose(table, state):
    with pytest.raises(ClientError) as caught:
        table.put_item(**put_request("state", state))
    assert caught.value.response["Error"]["Code"] == "ConditionalCheckFailedException"


def test_the_first_revision_is_written_once(table):
    assert read(table) is None
    table.put_item(**put_request("state", STATE))
    lose(table, replace(STATE, reason=Reason("slower")))
    assert read(table) == STATE


@pytest.mark.fault(36)
def test_each_revision_follows_the_one_before(table):
    table.put_item(**put_request("state", STATE))
    published = STATE.advance(Phase.PUBLISHED)
    table.put_item(**put_request("state", published))
    lose(table, STATE.advance(Phase.FAILED, reason=Reason("slower")))
    lose(table, published.advance(Phase.FORMED).advance(Phase.FAILED))
    assert read(table) == published


def test_a_later_revision_needs_an_item(table):
    lose(table, STATE.advance(Phase.PUBLISHED))
    assert read(table) is None


def test_clusters_do_not_meet(table):
    table.put_item(**put_request("state", replace(STATE, cluster="other")))
    assert read(table) is None
    table.put_item(**put_request("state", STATE))


def make_long_state(count):
    members = tuple(
        Member(f"i-{n:017x}", f"10.{n // 65536}.{n // 256 % 256}.{n % 256}", 8, f"ssh-ed25519 {n:068d}")
        for n in range(count)
    )
    expected = tuple(member.instance_id for member in members)
    return replace(STATE, phase=Phase.PUBLISHED, requested=count, expected=expected, members=members)


@pytest.mark.fault(28)
@pytest.mark.parametrize("count", [1_000, 5_000, 15_000])
def test_a_roster_of_any_length_is_written_and_read(table, count):
    state = make_long_state(count)
    for request in put_requests("state", state):
        assert len(json.dumps(request["Item"])) < 400_000  # DynamoDB's limit, which moto holds too
        table.put_item(**request)
    item = table.get_item(**get_request("state", "training"))["Item"]
    parts = [table.get_item(**request)["Item"] for request in part_requests("state", item)]
    assert ClusterState.from_item(item, parts) == state


@pytest.mark.fault(28)
def test_parts_of_another_roster_are_refused():
    ours, theirs = make_long_state(5_000), make_long_state(5_001)
    with pytest.raises(ContractError, match="another digest"):
        ClusterState.from_item(ours.to_item(), theirs.to_parts())
    with pytest.raises(ContractError, match="another digest"):
        ClusterState.from_item(ours.to_item(), ours.to_parts()[:-1])


def test_reads_are_strongly_consistent():
    assert get_request("state", "training")["ConsistentRead"] is True


def test_a_signal_is_put_with_the_content_type_that_was_signed(signals):
    send_signal(signals.url, signal_body("training", "SUCCESS", "4 nodes"))
    document = {"Status": "SUCCESS", "Reason": "4 nodes", "UniqueId": "training", "Data": "4 nodes"}
    assert signals.requests == [("/arn%3Aaws?X-Amz-Signature=a%2Fb", "", document)]


def test_a_signal_that_is_refused_is_an_error(signals):
    signals.status = 403
    with pytest.raises(urllib.error.HTTPError, match="403"):
        send_signal(signals.url, signal_body("training", "FAILURE", "why"))
