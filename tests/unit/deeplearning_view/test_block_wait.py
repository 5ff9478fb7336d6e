"""The page says what the workers of a Capacity Block wait for, from the record that the adjuster writes."""

import json
from dataclasses import replace
from datetime import datetime, timezone

import boto3
import pytest
from botocore.stub import Stubber

from capacity_adjuster.aws.state_table import StateTable
from capacity_adjuster.policy.requested_capacity import CapacityRequest, RequestedCapacity
from deeplearning_contract.capacity_block import CapacityBlock
from deeplearning_contract.settings import adjuster_variable
from deeplearning_view import aws_reader
from deeplearning_view.aws_responses import AwsResponses
from deeplearning_view.rendering import render_text
from deeplearning_view.view_builder import make_view
from tests.unit.deeplearning_view.cluster_responses import (
    MASTER_ID,
    make_group,
    make_item,
    make_resource,
    make_responses,
)

BLOCK = CapacityBlock("cr-0123456789abcdef0", "scheduled", 1796124600, 0)
REQUEST = RequestedCapacity(1, CapacityRequest("r", "c", 1, 3, "0", is_creation=True), ("r",), is_open=False)
NOW = datetime(2026, 11, 22, 11, tzinfo=timezone.utc)
CLUSTER = "training-1"


class Table:
    """The table, as far as the adjuster and the page use it."""

    def __init__(self):
        self.items = {}

    def put_item(self, **request):
        self.items[request["Item"]["cluster"]["S"]] = request["Item"]

    def get_item(self, **request):
        item = self.items.get(request["Key"]["cluster"]["S"])
        return {"Item": item} if item else {}


def write(block):
    """Return a table with the record of a request, as the adjuster writes it."""
    table = Table()
    StateTable(table, "table", CLUSTER).write(replace(REQUEST, block=block))
    return table


def look(block, status="CREATE_COMPLETE"):
    """Return the view of a cluster whose adjuster has such a record."""
    return make_view(make_responses(status, request=write(block).items[f"{CLUSTER}#request"]), NOW)


def test_workers_that_wait_for_their_block_have_a_row_with_its_start():
    view = look(BLOCK)
    row = "capacity   workers wait for the block cr-0123456789abcdef0 until 2026-12-01T11:30:00Z"
    assert row in render_text(view).splitlines()
    assert view.to_document()["waiting"] == row.removeprefix("capacity").strip()


def test_workers_whose_block_never_begins_have_a_row_with_the_state():
    assert "must be active or begin later, got cancelled" in " ".join(
        render_text(look(replace(BLOCK, state="cancelled"))).split()
    )


def test_a_block_that_has_begun_has_no_row():
    view = look(None)
    assert "waiting" not in view.to_document()
    assert "capacity" not in render_text(view)
    assert not view.unread


def test_a_cluster_that_has_failed_or_is_deleted_waits_for_nothing():
    assert [look(BLOCK, status).waiting for status in ("ROLLBACK_COMPLETE", "DELETE_COMPLETE")] == ["", ""]


@pytest.mark.parametrize("document", ["", '{"block": {"state": "scheduled"}}', json.dumps({"block": 7})])
def test_a_record_that_cannot_be_read_is_said(document):
    view = make_view(make_responses(request={"document": {"S": document}}), NOW)
    assert view.waiting == ""
    assert view.unread[0].startswith("the record of the requested capacity: ")


@pytest.mark.parametrize("start", [10**12, 10**30])
def test_a_start_out_of_reach_is_said(start):
    assert look(replace(BLOCK, start=start)).unread[0].startswith("the record of the requested capacity: ")


@pytest.mark.parametrize(("block_id", "is_read"), [(BLOCK.reservation_id, True), ("", False)])
def test_the_record_is_read_only_with_the_adjusters_setting(block_id, is_read):
    variables = {adjuster_variable("worker_block_id"): block_id} if block_id else {}
    functions = boto3.client("lambda", region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s")
    responses = AwsResponses("us-east-1", {"StackName": "training"})
    responses.resources = [
        make_resource("ClusterCapacityAdjusterFunction1", "AWS::Lambda::Function", "adjuster"),
        make_resource("ClusterCoordinationStateTable1", "AWS::DynamoDB::Table", "table"),
    ]
    responses.groups = [make_group("workers", "worker", 0, ())]
    responses.groups[0]["Tags"].append({"Key": "deeplearning:cluster", "Value": CLUSTER})
    with Stubber(functions) as stub:
        stub.add_response("get_function_configuration", {"Environment": {"Variables": variables}})
        clients = {"lambda": functions, "dynamodb": write(BLOCK)}
        reader = aws_reader._Reader(clients.__getitem__, responses)
        reader._read_limits()
        reader._read_state()
    assert (responses.request is not None) == is_read


def test_a_group_that_is_raised_after_the_verdict_raises_the_nodes_that_the_page_counts():
    """The verdict on the head says one node, and the membership grows without another verdict."""
    groups = [make_group("workers", "worker", 8, ()), make_group("master", "master", 1, [MASTER_ID])]
    item = make_item(members=(MASTER_ID,))
    assert make_view(make_responses(item=item, groups=groups), NOW).asked == 9
    # A shrink lowers the group, and the verdict still says what was requested.
    assert make_view(make_responses(item=make_item(), groups=groups[1:]), NOW).asked == 2
