"""EC2 answers for the account's reservations, as its API documents."""

import pytest
from botocore.exceptions import ClientError

BLOCK = {"id": "cr-0123456789abcdef0", "zone": "us-east-1a", "instance_type": "c5.large", "instances": 2}
LATER = {**BLOCK, "begins": 3600.0, "ends": 90000.0}
RESERVED = {**BLOCK, "id": "cr-0fedcba9876543210", "instance_type": "p4d.24xlarge", "is_block": False}
RESERVATIONS, KIND = "CapacityReservations", ("State", "ReservationType", "EndDateType")


@pytest.fixture
def deploy_block(deploy_template, sample_template):
    """Return the function that deploys the sample, whose workers launch into a block, with given reservations."""

    def deploy(*reservations, workers=1):
        template = sample_template["Resources"]
        template["WorkerGroup"]["Properties"]["DesiredCapacity"] = str(workers)
        template["WorkerTemplate"]["Properties"]["LaunchTemplateData"] |= {
            "InstanceMarketOptions": {"MarketType": "capacity-block"},
            "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": BLOCK["id"]}},
        }
        return deploy_template(sample_template, reservations=reservations, pace={"retries": [0.05]})

    return deploy


# The answer: EC2 API, DescribeCapacityReservations and CapacityReservation.
def test_a_block_that_begins_later_is_scheduled_and_a_reservation_has_all_its_instances_free(deploy_block):
    ec2 = deploy_block(LATER, RESERVED, workers=0).client("ec2")
    rows = {row["CapacityReservationId"]: row for row in ec2.describe_capacity_reservations()[RESERVATIONS]}
    block, other = rows[BLOCK["id"]], rows[RESERVED["id"]]
    assert [block[key] for key in KIND] == ["scheduled", "capacity-block", "limited"]
    assert (block["TotalInstanceCount"], block["AvailableInstanceCount"]) == (2, 0)
    assert (block["EndDate"] - block["StartDate"]).total_seconds() == 86400
    assert (block["StartDate"] - block["CreateDate"]).total_seconds() == 3600
    assert [other[key] for key in KIND] == ["active", "default", "unlimited"]
    assert (other["InstanceType"], other["AvailabilityZone"]) == ("p4d.24xlarge", "us-east-1a")
    assert (other["AvailableInstanceCount"], "EndDate" in other) == (2, False)


def test_reservations_are_found_by_ids_and_filters(deploy_block):
    ec2 = deploy_block(LATER, RESERVED, workers=0).client("ec2")

    def find(**request):
        return [row["CapacityReservationId"] for row in ec2.describe_capacity_reservations(**request)[RESERVATIONS]]

    assert find(CapacityReservationIds=[RESERVED["id"]]) == [RESERVED["id"]]
    assert find(Filters=[{"Name": "state", "Values": ["scheduled", "pending"]}]) == [BLOCK["id"]]
    assert find(Filters=[{"Name": "instance-type", "Values": ["p5.48xlarge"]}]) == []
    with pytest.raises(ClientError, match=r"InvalidCapacityReservationId\.NotFound"):
        find(CapacityReservationIds=["cr-00000000000000000"])
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        find(Filters=[{"Name": "colour", "Values": ["red"]}])


@pytest.mark.parametrize(
    ("times", "state"),
    [
        ({"begins": 3600.0, "before": "payment-pending"}, "payment-pending"),
        ({"ends": 0.0}, "expired"),
        ({"ends": 0.0, "after": "cancelled"}, "cancelled"),
    ],
)
def test_a_reservation_has_the_state_that_its_time_gives(deploy_block, times, state):
    ec2 = deploy_block({**BLOCK, **times}, workers=0).client("ec2")
    (row,) = ec2.describe_capacity_reservations()[RESERVATIONS]
    assert (row["State"], row["AvailableInstanceCount"]) == (state, 0)


# The messages: Amazon EC2 Auto Scaling User Guide, "Troubleshoot instance launch failures".
def test_a_group_gets_instances_of_a_block_once_it_has_begun_and_no_more_than_it_has(deploy_block):
    cloud = deploy_block(LATER, workers=3)
    cloud.observation("launch failed: InsufficientInstanceCapacity")
    messages = {row["StatusMessage"] for row in cloud.command("report")["activities"] if "StatusMessage" in row}
    assert f"Your Capacity Block reservation {BLOCK['id']} is not active yet." in " ".join(messages)
    assert cloud.seen("launched for worker") == []
    cloud.command("begin_reservation", name=BLOCK["id"])
    assert {cloud.machine("worker")["zone"] for _ in range(2)} == {"us-east-1a"}
    cloud.observation("launch failed: ReservationCapacityExceeded")
    ec2 = cloud.client("ec2")
    (row,) = ec2.describe_capacity_reservations(CapacityReservationIds=[BLOCK["id"]])[RESERVATIONS]
    assert (row["State"], row["AvailableInstanceCount"]) == ("active", 0)


@pytest.mark.parametrize("change", [{"instance_type": "c5.xlarge"}, {"zone": "us-east-1b"}, {"ends": 0.0}])
def test_a_block_of_another_type_or_zone_or_of_the_past_launches_nothing(deploy_block, change):
    cloud = deploy_block({**BLOCK, **change})
    cloud.observation("launch failed: ReservationCapacityExceeded")
    assert cloud.seen("launched for worker") == []


def test_an_account_without_given_reservations_has_the_one_that_a_group_targets(deploy_block):
    cloud = deploy_block()
    assert cloud.machine("worker")["instance_type"] == "c5.large"
    find = cloud.client("ec2").describe_capacity_reservations
    (row,) = find(CapacityReservationIds=[BLOCK["id"]])[RESERVATIONS]
    assert (row["State"], row["ReservationType"], row["AvailabilityZone"]) == ("active", "capacity-block", "us-east-1a")
    assert (row["TotalInstanceCount"], row["AvailableInstanceCount"]) == (3, 2)
