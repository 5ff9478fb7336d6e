"""The preflight names what would keep the nodes of a stack from launching, and says `unknown` where it cannot know."""

import dataclasses
import datetime as dt
import json
from pathlib import Path

import boto3
import moto
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from botocore.validate import ParamValidator

from cdk_rehearsal.manifest import StackArtifact
from deeplearning_cli import preflight
from deeplearning_cli.account.answers import (
    Answers,
    Quota,
    Refused,
    Reservation,
    Subnet,
    _read_reservations,
    read_answers,
)
from deeplearning_cli.account.demand import NodeDemand, Zone, list_demands
from deeplearning_cli.account.judgement import judge
from deeplearning_cli.account.launch_answers import DryRun, LaunchAnswer, list_launches, read_launches
from deeplearning_cli.account.launches import judge_launches
from deeplearning_cli.account.quotas import list_names
from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.main import main
from deeplearning_contract.names import CANDIDATE_TAG, ROLE_TAG

ON_DEMAND = "Running On-Demand P instances"
WORKERS = NodeDemand(
    "Workers", "worker", "0", "p4d.24xlarge", 3, Zone(index=0), image="ssm:/image", key_pair="mine", market="on-demand"
)
MASTER = dataclasses.replace(WORKERS, group="Master", role="master", count=1)
WELL = Answers(
    zones={"us-east-1a": "use1-az6", "us-east-1b": "use1-az1"},
    vcpus={"p4d.24xlarge": 96},
    offered={"p4d.24xlarge": frozenset({"us-east-1a"})},
    quotas={ON_DEMAND: Quota(480.0, 96.0)},
    images={"ssm:/image": "ami-1"},
    key_pairs=frozenset({"mine"}),
)


def judged(answers=WELL, demands=(MASTER, WORKERS)):
    """Return subject -> state, and all text, of what is not ok."""
    found = [finding for finding in judge(demands, answers) if finding.state != "ok"]
    return {finding.subject: finding.state for finding in found}, " ".join(f"{f.detail} {f.remedy}" for f in found)


def test_nothing_is_wrong_with_an_account_that_has_all():
    assert judged() == ({}, "")
    assert len(judge((MASTER, WORKERS), WELL)) == 4


@pytest.mark.parametrize(
    ("change", "subject", "text"),
    [
        (
            {"quotas": {ON_DEMAND: Quota(479.0, 96.0)}},
            f"quota {ON_DEMAND}",
            "1 p4d.24xlarge and 3 p4d.24xlarge need 384 vCPUs, the quota is 479, 96 are in use request at least 480",
        ),
        ({"quotas": {ON_DEMAND: Quota(0.0, None)}}, f"quota {ON_DEMAND}", "the quota is 0, its use is unknown"),
        ({"offered": {"p4d.24xlarge": frozenset({"us-east-1b"})}}, "p4d.24xlarge in us-east-1a", "one of us-east-1b"),
        ({"offered": {}}, "p4d.24xlarge in us-east-1a", "no zone of the region has p4d.24xlarge"),
        ({"images": {"ssm:/image": None}}, "image /image", "this region has none"),
        ({"key_pairs": frozenset({"other"})}, "key pair mine", "create-key-pair --key-name mine"),
    ],
)
def test_what_a_launch_would_fail_with_is_wrong(change, subject, text):
    states, words = judged(dataclasses.replace(WELL, **change))
    assert states == {subject: "wrong"}
    assert text in words


@pytest.mark.parametrize("answer", ["zones", "offered", "quotas", "vcpus", "images", "key_pairs"])
def test_what_the_account_refuses_to_say_is_unknown(answer):
    states, words = judged(dataclasses.replace(WELL, **{answer: Refused("you are not authorized")}))
    assert set(states.values()) == {"unknown"}
    assert "you are not authorized allow " in words


def test_a_quota_whose_use_is_not_known_is_unknown_where_it_may_suffice():
    states, _ = judged(dataclasses.replace(WELL, quotas={ON_DEMAND: Quota(384.0, None)}))
    assert states == {f"quota {ON_DEMAND}": "unknown"}
    states, _ = judged(dataclasses.replace(WELL, quotas={}))
    assert states == {f"quota {ON_DEMAND}": "unknown"}


@pytest.mark.parametrize("name", ["All P Spot Instance Requests", "All P4, P3 and P2 Spot Instance Requests"])
def test_the_spot_quota_of_p_types_is_found_by_either_name_of_the_guide(name):
    spot = dataclasses.replace(WORKERS, market="spot")
    assert judged(dataclasses.replace(WELL, quotas={name: Quota(288.0, 0.0)}), [spot]) == ({}, "")
    assert judged(dataclasses.replace(WELL, quotas={name: Quota(287.0, 0.0)}), [spot])[0] == {f"quota {name}": "wrong"}


def test_candidates_are_counted_one_at_a_time():
    other = dataclasses.replace(WORKERS, group="Others", candidate="us-east-1b-1f3a", count=4)
    assert judged(demands=(MASTER, WORKERS, other)) == ({}, "")
    other = dataclasses.replace(other, count=5)
    assert judged(demands=(MASTER, WORKERS, other))[0] == {f"quota {ON_DEMAND}": "wrong"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"state": "scheduled"}, "deploy once its state is active"),
        ({"state": "expired"}, "reserve capacity anew"),
        ({"free": 2}, "the stack asks for 3"),
        ({"zone": "us-east-1b"}, "set network.availability_zone to us-east-1b"),
        ({"instance_type": "p5.48xlarge"}, "choose p5.48xlarge in place of p4d.24xlarge"),
    ],
)
def test_a_reservation_must_be_active_and_fit(change, text):
    demand = dataclasses.replace(WORKERS, market="reserved", reservation="cr-1")
    fits = Reservation("active", "p4d.24xlarge", "us-east-1a", 3, is_block=False)
    answers = dataclasses.replace(WELL, quotas={}, reservations={"cr-1": fits})
    assert judged(answers, [demand]) == ({}, "")
    states, words = judged(
        dataclasses.replace(answers, reservations={"cr-1": dataclasses.replace(fits, **change)}), [demand]
    )
    assert states == {"reservation cr-1": "wrong"}
    assert text in words
    assert judged(dataclasses.replace(answers, reservations={}), [demand])[0] == {"reservation cr-1": "wrong"}


def test_workers_wait_for_a_block_that_begins_later_and_a_master_does_not():
    later = Reservation("scheduled", "p4d.24xlarge", "us-east-1a", 3, is_block=True, start="2026-12-01")
    answers = dataclasses.replace(WELL, quotas={}, reservations={"cr-1": later})
    workers, master = (dataclasses.replace(each, market="reserved", reservation="cr-1") for each in (WORKERS, MASTER))
    assert judged(answers, [workers]) == ({}, "")
    states, words = judged(answers, [workers, master])
    assert states == {"reservation cr-1": "wrong"}
    assert "deploy once its state is active" in words


# --- Launches that are not made -----------------------------------------------------------------------

ALL = dataclasses.replace(WORKERS, group="", role="", count=4)
SPOT = dataclasses.replace(ALL, market="spot", candidate="us-east-1a-1f3a")
DENIED = (
    "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/me is not authorized to "
    "perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:instance/* {} Encoded authorization "
    "failure message: 4GIOHlTkIaWHQD0Q0m6XSnuUMCm"
)


def test_instances_of_a_candidate_that_are_alike_are_one_launch():
    other = dataclasses.replace(WORKERS, candidate="us-east-1b-1f3a")
    elsewhere = dataclasses.replace(ALL, candidate=other.candidate, count=3)
    assert list_launches([MASTER, WORKERS, other]) == [ALL, elsewhere]


def dry_run(code, message):
    return {"dry_run": DryRun(code, message)}


ACCEPTED = "EC2 would take image, type, key pair and zone together; it proves no capacity and no quota"
DRY_RUNS = (
    ("Unsupported", "The requested configuration is currently not supported.", "wrong"),
    ("InvalidKeyPair.NotFound", "The key pair 'mine' does not exist", "wrong"),
    ("VPCIdNotSpecified", "No default VPC for this user.", "unknown"),
    ("MissingInput", "No subnets found for the default VPC 'vpc-1'. Please specify a subnet.", "unknown"),
    ("RequestLimitExceeded", "Request limit exceeded.", "unknown"),
    ("SomethingNew", "words", "unknown"),
)
DENIALS = (
    (
        "because no identity-based policy allows the ec2:RunInstances action.",
        "unknown",
        ", which allows real launches too, or leave it",
    ),
    ("with an explicit deny in a service control policy.", "wrong", " in this region"),
    ("because no service control policy allows the ec2:RunInstances action.", "wrong", " in this region"),
)
"""Words of denials: IAM User Guide, "Troubleshoot access denied error messages"."""


@pytest.mark.parametrize(
    ("answers", "state", "detail", "remedy"),
    [
        (dry_run("DryRunOperation", "Request would have succeeded, but DryRun flag is set."), "ok", ACCEPTED, ""),
        *((dry_run(code, message), state, f"{code}: {message}", " ") for code, message, state in DRY_RUNS),
        *(
            (
                dry_run("UnauthorizedOperation", DENIED.format(because)),
                state,
                f"UnauthorizedOperation: {DENIED.partition(' Encoded')[0].format(because)}",
                f"allow ec2:RunInstances{remedy}",
            )
            for because, state, remedy in DENIALS
        ),
        ({"dry_run": Refused("no")}, "unknown", "no", ""),
        ({"spot_score": 1}, "ok", "1 of 10, which is always low for fewer than three types", ""),
        ({"spot_score": Refused("no")}, "unknown", "no", ""),
        ({"supportability": "low"}, "ok", "low by the capacity of this moment, which is no promise", ""),
        ({"supportability": "unsupported"}, "wrong", "unsupported", ""),
        ({"supportability": Refused("no")}, "unknown", "no", ""),
    ],
)
def test_a_dry_run_or_a_score_is_wrong_for_what_a_launch_would_fail_with_and_no_promise(answers, state, detail, remedy):
    (found,) = judge_launches([LaunchAnswer(ALL, "us-east-1a", **answers)])
    assert found.subject.endswith(" of 4 p4d.24xlarge in us-east-1a")
    assert (found.state, found.detail, found.is_advice) == (state, detail, state == "unknown")
    assert remedy in found.remedy


class Ec2:
    """EC2 that refuses each dry run and gives scores, or refuses them."""

    def __init__(self, *, has_plan=True):
        self.has_plan, self.asked = has_plan, []

    def run_instances(self, **request):
        self.asked.append(("run_instances", request))
        raise ClientError({"Error": {"Code": "DryRunOperation", "Message": "would have succeeded"}}, "RunInstances")

    def get_spot_placement_scores(self, **request):
        self.asked.append(("spot", request))
        zones = ("use1-az1", 9), ("use1-az6", 3)
        return {"SpotPlacementScores": [{"AvailabilityZoneId": name, "Score": score} for name, score in zones]}

    def get_capacity_manager_supportability_scores(self, **request):
        self.asked.append(("supportability", request))
        if not self.has_plan:
            raise ClientError({"Error": {"Code": "AnyCode", "Message": "no plan"}}, "operation")
        row = {"InstanceType": "p4d.24xlarge", "AvailabilityZoneId": "use1-az6", "Score": "medium"}
        return {"CapacityManagerSupportabilityScores": [row]}


OPERATIONS = {
    "run_instances": "RunInstances",
    "spot": "GetSpotPlacementScores",
    "supportability": "GetCapacityManagerSupportabilityScores",
}


def read(ec2, *demands, **changes):
    return read_launches(ec2, "us-east-1", demands, dataclasses.replace(WELL, **changes))


def test_ec2_is_asked_about_each_launch_in_its_zone_and_market_without_launching():
    ec2 = Ec2()
    on_demand, spot = read(ec2, MASTER, WORKERS, SPOT)
    accepted = DryRun("DryRunOperation", "would have succeeded")
    assert on_demand == LaunchAnswer(ALL, "us-east-1a", accepted, None, "medium")
    assert spot == LaunchAnswer(SPOT, "us-east-1a", accepted, 3, "medium")
    model = boto3.client("ec2", region_name="us-east-1").meta.service_model
    for name, request in ec2.asked:
        assert not ParamValidator().validate(request, model.operation_model(OPERATIONS[name]).input_shape).has_errors()
    requests = [request for name, request in ec2.asked if name == "run_instances"]
    base = {"ImageId": "ami-1", "InstanceType": "p4d.24xlarge", "MinCount": 4, "MaxCount": 4, "KeyName": "mine"}
    base |= {"Placement": {"AvailabilityZone": "us-east-1a"}, "DryRun": True}
    assert requests == [base, {**base, "InstanceMarketOptions": {"MarketType": "spot"}}]
    asked = dict(ec2.asked)
    assert (asked["spot"]["TargetCapacity"], asked["spot"]["SingleAvailabilityZone"]) == (4, True)
    assert (asked["supportability"]["MarketType"], asked["supportability"]["CapacityAmount"]) == ("spot", 4)
    assert (asked["supportability"]["CapacityUnit"], asked["spot"]["TargetCapacityUnitType"]) == ("instances", "units")


def test_a_subnet_of_the_account_is_named_in_the_dry_run():
    ec2 = Ec2()
    demand = dataclasses.replace(WORKERS, zone=Zone(subnet="subnet-1"))
    read(ec2, demand, subnets={"subnet-1": Subnet("us-east-1a", "vpc-1", 9)})
    request = dict(ec2.asked)["run_instances"]
    assert (request["SubnetId"], "Placement" in request) == ("subnet-1", False)


def test_ec2_is_not_asked_for_a_reservation_nor_for_an_image_or_a_zone_that_is_not_known():
    reserved = dataclasses.replace(WORKERS, market="reserved", reservation="cr-1")
    assert read(Ec2(), reserved, dataclasses.replace(WORKERS, zone=None)) == []
    (answer,) = read(Ec2(), WORKERS, images={"ssm:/image": None})
    assert (answer.dry_run, answer.supportability) == (None, "medium")
    (answer,) = read(Ec2(), dataclasses.replace(SPOT, zone=Zone(name="us-east-1c")))
    assert (answer.spot_score, answer.supportability) == (None, None)


def test_an_account_without_supportability_is_asked_for_it_once():
    ec2 = Ec2(has_plan=False)
    first, second = read(ec2, WORKERS, SPOT)
    assert ("no plan" in first.supportability.reason, second.supportability) == (True, None)
    assert [name for name, _ in ec2.asked].count("supportability") == 1


def test_a_zone_that_is_not_among_the_ten_best_has_no_spot_score():
    (answer,) = read(Ec2(), dataclasses.replace(SPOT, zone=Zone(name="us-east-1d")), zones={"us-east-1d": "use1-az4"})
    assert "no score" in answer.spot_score.reason


# --- The template -------------------------------------------------------------------------------------


def make_template(data=None, *, zone=None, **properties):
    """Return a template with a group of workers."""
    tags = [{"Key": ROLE_TAG, "Value": "worker"}, {"Key": CANDIDATE_TAG, "Value": "0"}]
    return {
        "Resources": {
            "Ask": {"Type": "Custom::RequestedCapacity", "Properties": {"Master": "1", "Workers": "3"}},
            "Pin": {"Type": "Custom::PinnedImage", "Properties": {"Parameter": "/image"}},
            "Subnet": {
                "Type": "AWS::EC2::Subnet",
                "Properties": {"AvailabilityZone": zone or {"Fn::Select": [0, {"Fn::GetAZs": ""}]}},
            },
            "Template": {
                "Type": "AWS::EC2::LaunchTemplate",
                "Properties": {
                    "LaunchTemplateData": {
                        "InstanceType": "p4d.24xlarge",
                        "ImageId": {"Fn::GetAtt": ["Pin", "ImageId"]},
                        "KeyName": "mine",
                    }
                    | (data or {})
                },
            },
            "Workers": {
                "Type": "AWS::AutoScaling::AutoScalingGroup",
                "Properties": {
                    "LaunchTemplate": {"LaunchTemplateId": {"Ref": "Template"}},
                    "MinSize": "0",
                    "Tags": tags,
                    "VPCZoneIdentifier": [{"Ref": "Subnet"}],
                }
                | properties,
            },
        }
    }


TARGETS = {
    key: {"CapacityReservationTarget": {key: name}}
    for key, name in (("CapacityReservationId", "cr-1"), ("CapacityReservationIds", ["cr-1"]))
}
RESERVED = {"market": "reserved", "reservation": "cr-1"}


@pytest.mark.parametrize(
    ("template", "change"),
    [
        (make_template(), {}),
        (make_template(zone="us-east-1b"), {"zone": Zone(name="us-east-1b")}),
        (make_template(VPCZoneIdentifier=["subnet-1"]), {"zone": Zone(subnet="subnet-1")}),
        (make_template({"InstanceMarketOptions": {"MarketType": "spot"}}), {"market": "spot"}),
        (make_template({"CapacityReservationSpecification": TARGETS["CapacityReservationId"]}), RESERVED),
        (make_template(CapacityReservationSpecification=TARGETS["CapacityReservationIds"]), RESERVED),
    ],
    ids=["default", "zone", "subnet", "spot", "reserved by the template", "reserved by the group"],
)
def test_a_template_says_what_its_groups_ask_for(template, change):
    assert list_demands([template]) == (dataclasses.replace(WORKERS, **change),)


def make_node_group(data=None, **properties):
    """Return a template with a managed node group of EKS."""
    group = {
        "InstanceTypes": ["p4d.24xlarge"],
        "CapacityType": "ON_DEMAND",
        "LaunchTemplate": {"Id": {"Ref": "Template"}, "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]}},
        "ScalingConfig": {"MinSize": 0, "DesiredSize": 2, "MaxSize": 2},
        "Subnets": [{"Ref": "Subnet"}],
    }
    return {
        "Resources": {
            "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": {"AvailabilityZone": "us-east-1a"}},
            "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data or {}}},
            "Members": {"Type": "AWS::EKS::Nodegroup", "Properties": group | properties},
        }
    }


def test_a_managed_node_group_asks_for_its_desired_nodes():
    demand = NodeDemand("Members", "", "0", "p4d.24xlarge", 2, Zone(name="us-east-1a"))
    assert list_demands([make_node_group()]) == (demand,)
    assert list_demands([make_node_group(CapacityType="SPOT")]) == (dataclasses.replace(demand, market="spot"),)
    assert list_demands([make_node_group(ScalingConfig={"MinSize": 0, "DesiredSize": 0, "MaxSize": 2})]) == ()
    data = {"InstanceType": "p5.48xlarge", "CapacityReservationSpecification": TARGETS["CapacityReservationId"]}
    block = make_node_group(data, InstanceTypes=[], CapacityType="CAPACITY_BLOCK")
    assert list_demands([block]) == (dataclasses.replace(demand, instance_type="p5.48xlarge", **RESERVED),)


def test_a_reservation_counts_against_no_quota_once_more():
    assert list_names("p4d.24xlarge", "reserved") == ()
    assert list_names("p4d.24xlarge", "on-demand") == (ON_DEMAND,)


# --- The account --------------------------------------------------------------------------------------


@pytest.fixture
def account(monkeypatch):
    """Return a function that opens an account of moto with the quotas of P instances, of which some are in use."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with moto.mock_aws():
        clients = {
            name: boto3.client(name, region_name="us-east-1") for name in ("ec2", "ssm", "cloudwatch", "cloudformation")
        }
        clients["ec2"].create_key_pair(KeyName="mine")
        clients["ssm"].put_parameter(Name="/image", Value="ami-1", Type="String")
        clients["service-quotas"] = boto3.client("service-quotas", region_name="us-east-1")
        stub = Stubber(clients["service-quotas"])
        dimensions = {"Service": "EC2", "Resource": "vCPU", "Type": "Resource", "Class": "P/OnDemand"}

        def open_account(*, quota=480.0, used=96.0, error="", applied=True):
            usage = {"MetricNamespace": "AWS/Usage", "MetricName": "ResourceCount", "MetricDimensions": dimensions}
            entry = {"QuotaName": ON_DEMAND, "Value": quota, "UsageMetric": usage}
            asked = {"ServiceCode": "ec2"}
            if error:
                stub.add_client_error("list_service_quotas", error, expected_params=asked)
            else:
                stub.add_response("list_service_quotas", {"Quotas": [entry] if applied else []}, asked)
            if not applied:
                stub.add_response("list_aws_default_service_quotas", {"Quotas": [entry]}, asked)
            point = {
                "MetricName": "ResourceCount",
                "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
                "Timestamp": dt.datetime.now(tz=dt.UTC) - dt.timedelta(minutes=10),
                "Value": used,
            }
            clients["cloudwatch"].put_metric_data(Namespace="AWS/Usage", MetricData=[point])
            stub.activate()
            return clients.__getitem__

        yield open_account


def test_an_account_is_asked_by_calls_that_change_nothing(account):
    answers = read_answers(account(), [MASTER, WORKERS], [ON_DEMAND])
    assert answers.vcpus == {"p4d.24xlarge": 96}
    assert answers.quotas == {ON_DEMAND: Quota(480.0, 96.0)}
    assert answers.images == {"ssm:/image": "ami-1"}
    assert list(answers.zones)[:2] == ["us-east-1a", "us-east-1b"]
    assert answers.place(Zone(index=1)) == "us-east-1b"
    assert answers.offered["p4d.24xlarge"] <= set(answers.zones)


def test_a_quota_is_the_applied_value_the_default_one_or_the_reason_of_a_denial(account):
    """Service Quotas API, `ListServiceQuotas`: "For some quotas, only the default values are available"."""
    answers = read_answers(account(applied=False, quota=0.0, used=0.0), [MASTER, WORKERS], [ON_DEMAND])
    assert answers.quotas == {ON_DEMAND: Quota(0.0, 0.0)}
    answers = read_answers(account(error="AccessDeniedException"), [WORKERS], [ON_DEMAND])
    assert "AccessDeniedException" in answers.quotas.reason


def test_zones_are_counted_as_cloudformation_does_by_their_default_subnets(account):
    """CloudFormation template reference, "Fn::GetAZs"."""
    clients = account()
    subnets = clients("ec2").describe_subnets()["Subnets"]
    for subnet in subnets:
        if subnet["AvailabilityZone"] == "us-east-1a":
            clients("ec2").delete_subnet(SubnetId=subnet["SubnetId"])
    assert read_answers(clients, [], []).place(Zone(index=0)) == "us-east-1b"
    for subnet in subnets:
        if subnet["AvailabilityZone"] != "us-east-1a":
            clients("ec2").delete_subnet(SubnetId=subnet["SubnetId"])
    assert read_answers(clients, [], []).place(Zone(index=0)) == "us-east-1a"


def test_what_does_not_exist_is_no_error(account):
    demand = dataclasses.replace(WORKERS, instance_type="p99.large", image="ssm:/none")
    answers = read_answers(account(), [demand], [])
    assert (answers.vcpus, answers.offered) == ({}, {"p99.large": frozenset()})
    assert answers.images == {"ssm:/none": None}
    image = dataclasses.replace(WORKERS, image="ami-0123456789abcdef0")
    assert read_answers(account(), [image], []).images == {"ami-0123456789abcdef0": None}


def test_reservations_are_asked_for_one_by_one_since_an_unknown_one_fails_a_call():
    ec2 = boto3.client("ec2", region_name="us-east-1")
    entry = {
        "CapacityReservationId": "cr-2",
        "State": "scheduled",
        "InstanceType": "p4d.24xlarge",
        "AvailabilityZone": "us-east-1a",
        "AvailableInstanceCount": 4,
        "ReservationType": "capacity-block",
    }
    with Stubber(ec2) as stub:
        ask = "describe_capacity_reservations"
        stub.add_client_error(ask, "InvalidCapacityReservationId.NotFound")
        stub.add_response(ask, {"CapacityReservations": [entry]}, {"CapacityReservationIds": ["cr-2"]})
        found = _read_reservations(ec2, ["cr-1", "cr-2"])
    assert found == {"cr-2": Reservation("scheduled", "p4d.24xlarge", "us-east-1a", 4, is_block=True)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0, {"ok", "unknown"})),  # for a score that the account does not get
        ({"quota": 0.0, "used": 0.0}, (1, {"ok", "wrong", "unknown"})),
        ({"error": "AccessDeniedException"}, (2, {"ok", "unknown"})),
    ],
)
def test_the_exit_status_says_whether_the_nodes_can_launch(account, monkeypatch, capsys, options, expected):
    clients = account(**options)
    refuse = Ec2(has_plan=False).get_capacity_manager_supportability_scores  # moto has no such call
    monkeypatch.setattr(clients("ec2"), refuse.__name__, refuse)
    monkeypatch.setattr(preflight, "open_cloud", lambda _: CloudAccess(clients, "us-east-1", None))
    (zone, *_) = read_answers(clients, [WORKERS], []).offered["p4d.24xlarge"]
    stack = type("Stack", (), {"templates": [make_template(zone=zone)], "name": "mine", "path": "mine"})
    monkeypatch.setattr(preflight, "read_cluster", lambda *_: stack)
    artifact = StackArtifact(Path(), "mine", {"properties": {}}, {})
    monkeypatch.setattr(preflight, "find_stacks", lambda *_: (artifact,))
    offer = {"CapacityBlockOfferings": []}  # moto has no such call either
    monkeypatch.setattr(clients("ec2"), "describe_capacity_block_offerings", lambda **_: offer)
    status = main(["preflight", "--json"])
    assert (status, {finding["state"] for finding in json.loads(capsys.readouterr().out)}) == expected


def test_a_folder_without_a_cluster_is_refused(tmp_path, capsys):
    assert main(["preflight", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
