"""EC2 answers for the reservations, quotas and offerings of an account, and launches accordingly."""

import datetime as dt

import pytest
from botocore.exceptions import ClientError

BLOCK = {"id": "cr-0123456789abcdef0", "zone": "us-east-1a", "instance_type": "p4d.24xlarge", "instances": 2}
"""Of a type that EC2 sells in Capacity Blocks."""
LATER = {**BLOCK, "begins": 3600.0, "ends": 90000.0}
RESERVED = {**BLOCK, "id": "cr-0fedcba9876543210", "is_block": False}
STANDARD = "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
SPOT = "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"
RESERVATIONS, KIND = "CapacityReservations", ("State", "ReservationType", "EndDateType")


@pytest.fixture
def deploy_block(deploy_template, sample_template):
    """Return the function that deploys the sample, whose workers launch into a block, with given reservations."""

    def deploy(*reservations):
        template = sample_template["Resources"]
        template["WorkerGroup"]["Properties"]["DesiredCapacity"] = "0"  # asked for later: refusals fail a new group
        template["WorkerTemplate"]["Properties"]["LaunchTemplateData"] |= {
            "InstanceType": BLOCK["instance_type"],
            "InstanceMarketOptions": {"MarketType": "capacity-block"},
            "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": BLOCK["id"]}},
        }
        return deploy_template(sample_template, reservations=reservations, pace={"retries": [0.05]})

    return deploy


# The answer: EC2 API, DescribeCapacityReservations and CapacityReservation.
def test_a_block_that_begins_later_is_scheduled_and_a_reservation_has_all_its_instances_free(deploy_block):
    ec2 = deploy_block(LATER, RESERVED).client("ec2")
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
    ec2 = deploy_block(LATER, RESERVED).client("ec2")

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
    ec2 = deploy_block({**BLOCK, **times}).client("ec2")
    (row,) = ec2.describe_capacity_reservations()[RESERVATIONS]
    assert (row["State"], row["AvailableInstanceCount"]) == (state, 0)


# The messages: Amazon EC2 Auto Scaling User Guide, "Troubleshoot instance launch failures".
def test_a_group_gets_instances_of_a_block_once_it_has_begun_and_no_more_than_it_has(deploy_block):
    cloud = deploy_block(LATER)
    cloud.ask("WorkerGroup", 3)
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


@pytest.mark.parametrize("change", [{"instance_type": "p5.48xlarge"}, {"zone": "us-east-1b"}, {"ends": 0.0}])
def test_a_block_of_another_type_or_zone_or_of_the_past_launches_nothing(deploy_block, change):
    cloud = deploy_block({**BLOCK, **change})
    cloud.ask("WorkerGroup", 1)
    cloud.observation("launch failed: ReservationCapacityExceeded")
    assert cloud.seen("launched for worker") == []


def test_an_account_without_given_reservations_has_the_one_that_a_group_targets(deploy_block):
    cloud = deploy_block()
    cloud.ask("WorkerGroup", 1)
    assert cloud.machine("worker")["instance_type"] == BLOCK["instance_type"]
    find = cloud.client("ec2").describe_capacity_reservations
    (row,) = find(CapacityReservationIds=[BLOCK["id"]])[RESERVATIONS]
    assert (row["State"], row["ReservationType"], row["AvailabilityZone"]) == ("active", "capacity-block", "us-east-1a")
    assert (row["TotalInstanceCount"], row["AvailableInstanceCount"]) == (3, 2)


# The names: EC2 User Guide, "Amazon EC2 service quotas"; the metric: CloudWatch User Guide, "AWS usage metrics".
def test_quotas_are_listed_with_their_values_and_the_metric_of_their_use(deploy_template, sample_template):
    cloud = deploy_template(sample_template, quotas={STANDARD: 6})
    for role in ("master", "worker", "worker"):
        cloud.machine(role)
    quotas = cloud.client("service-quotas")
    listed = {each["QuotaName"]: each for each in quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]}
    assert (listed[STANDARD]["QuotaCode"], listed[STANDARD]["Value"]) == ("L-1216C47A", 6)
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-1216C47A")["Quota"] == listed[STANDARD]
    assert measure(cloud, listed[STANDARD]) == [6]  # three c5.large
    assert list(listed) == [STANDARD]
    defaults = quotas.list_aws_default_service_quotas(ServiceCode="ec2")["Quotas"]
    others = {each["QuotaName"]: each for each in defaults}
    assert measure(cloud, others["Running On-Demand P instances"]) == []
    with pytest.raises(ClientError, match="NoSuchResourceException"):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")
    with pytest.raises(ClientError, match="NoSuchResourceException"):
        quotas.list_service_quotas(ServiceCode="nothing")


def measure(cloud, quota):
    """Return the values of the metric of a quota's use in the last hour."""
    metric, now = quota["UsageMetric"], dt.datetime.now(tz=dt.UTC)
    points = cloud.client("cloudwatch").get_metric_statistics(
        Namespace=metric["MetricNamespace"],
        MetricName=metric["MetricName"],
        Dimensions=[{"Name": name, "Value": value} for name, value in metric["MetricDimensions"].items()],
        StartTime=now - dt.timedelta(hours=1),
        EndTime=now,
        Period=300,
        Statistics=["Maximum"],
    )["Datapoints"]
    return [point["Maximum"] for point in points]


# The message: scrapoxy/scrapoxy#202.
def test_a_launch_above_a_quota_is_refused_and_fits_again_once_an_instance_has_ended(start_cloud, asking_assembly):
    cloud = start_cloud(quotas={STANDARD: 5}, pace={"retries": [0.05]})
    cloud.deploy(asking_assembly)
    cloud.ask("WorkerGroup", 3)
    workers = [cloud.machine("worker") for _ in range(2)]
    cloud.observation("launch failed: VcpuLimitExceeded")
    messages = {row["StatusMessage"] for row in cloud.command("report")["activities"] if "StatusMessage" in row}
    assert "more vCPU capacity than your current vCPU limit of 5 allows" in " ".join(messages)
    cloud.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=workers[0]["instance_id"], ShouldDecrementDesiredCapacity=True
    )
    assert cloud.machine("worker")["instance_type"] == "c5.large"


def test_a_spot_launch_above_its_quota_is_refused_in_the_words_for_spot_instances(deploy_template, sample_template):
    template = sample_template["Resources"]
    template["WorkerGroup"]["Properties"]["DesiredCapacity"] = "0"
    data = template["WorkerTemplate"]["Properties"]["LaunchTemplateData"]
    data["InstanceMarketOptions"] = {"MarketType": "spot"}
    cloud = deploy_template(sample_template, quotas={SPOT: 0})
    cloud.ask("WorkerGroup", 1)
    cloud.observation("launch failed: MaxSpotInstanceCountExceeded")


def test_a_zone_without_an_instance_type_neither_offers_nor_launches_it(start_cloud, asking_assembly):
    cloud = start_cloud(missing_types={"us-east-1a": ["c5.large"]})
    cloud.deploy(asking_assembly)
    cloud.ask("WorkerGroup", 1)
    cloud.observation("launch failed: Unsupported")
    asked = {"LocationType": "availability-zone", "Filters": [{"Name": "instance-type", "Values": ["c5.large"]}]}
    offered = cloud.client("ec2").describe_instance_type_offerings(**asked)["InstanceTypeOfferings"]
    zones = {each["Location"] for each in offered}
    assert "us-east-1b" in zones
    assert "us-east-1a" not in zones
