"""The Capacity Block of the workers, as EC2 answers."""

import json
from dataclasses import replace
from datetime import datetime, timezone

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from capacity_adjuster import handler
from capacity_adjuster.aws.capacity_blocks import BlockReader
from capacity_adjuster.aws.state_table import StateTable
from capacity_adjuster.policy.requested_capacity import CapacityRequest, RequestedCapacity
from capacity_adjuster.reconcile.adapters import InvocationClock
from deeplearning_contract.capacity_block import CapacityBlock

ID = "cr-0123456789abcdef0"
START = datetime(2026, 12, 1, 11, 30, tzinfo=timezone.utc)
REQUEST = RequestedCapacity(1, CapacityRequest("r", "c", 1, 3, "0", is_creation=True), ("r",))


def read(answer=None, code=""):
    client = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s")
    with Stubber(client) as stub:
        if code:
            stub.add_client_error("describe_capacity_reservations", code)
        else:
            stub.add_response("describe_capacity_reservations", answer, {"CapacityReservationIds": [ID]})
        return BlockReader(lambda: client, ID).read(77.9)


def test_a_block_has_the_state_and_the_start_that_ec2_says():
    answer = {"CapacityReservations": [{"CapacityReservationId": ID, "State": "scheduled", "StartDate": START}]}
    assert read(answer) == CapacityBlock(ID, "scheduled", int(START.timestamp()), 77)
    del answer["CapacityReservations"][0]["StartDate"]
    assert read(answer).start == 0


# EC2 API reference, "Error codes": InvalidCapacityReservationId.NotFound and .Malformed.
@pytest.mark.parametrize("code", ["InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"])
def test_an_id_that_ec2_does_not_know_is_a_block_that_never_begins(code):
    assert read(code=code).is_over
    assert read({"CapacityReservations": []}).is_over


def test_a_refused_read_says_nothing_of_the_block():
    with pytest.raises(ClientError):
        read(code="UnauthorizedOperation")


def test_the_record_of_a_request_has_its_block_and_else_the_keys_of_before():
    block = CapacityBlock(ID, "scheduled", 5, 77)
    written = []

    class Table:
        def put_item(self, **request):
            written.append(request["Item"])

        def get_item(self, **_request):
            return {"Item": written[-1]}

    table = StateTable(Table(), "table", "training")
    for record in (REQUEST, replace(REQUEST, block=block)):
        assert table.write(record)
        assert table.read(RequestedCapacity) == record
    keys = [set(json.loads(item["document"]["S"])) for item in written]
    before = {"asks", "former", "is_open", "is_over", "known", "lease_until", "request", "revision"}
    assert keys == [before, before | {"block"}]


def test_only_an_adjuster_with_the_setting_reads_a_block(settings, monkeypatch):
    monkeypatch.setattr(handler, "_make_client", lambda service: service)
    assert handler.make_adapters(settings, InvocationClock(None)).block is None
    reader = handler.make_adapters(replace(settings, worker_block_id=ID), InvocationClock(None)).block
    assert reader is not None
    assert reader.reservation_id == ID
