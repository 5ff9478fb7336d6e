"""Findings about the bootstrap stack, the stack itself and Capacity Blocks, which are advice but for the first."""

import dataclasses
import datetime as dt

import boto3
import pytest
from botocore.stub import Stubber

from deeplearning_cli.account.answers import Answers, Refused
from deeplearning_cli.account.blocks import BlockOffer, judge_offers, list_blocks, read_offers
from deeplearning_cli.account.bootstrap import Bootstrap, judge_bootstraps, list_bootstraps
from deeplearning_cli.account.demand import NodeDemand
from deeplearning_cli.account.deployed import judge_status

# --- Bootstrap stack ----------------------------------------------------------------------------------

NAME = "/cdk-bootstrap/hnb659fds/version"


def judge_one(found, name=NAME):
    (finding,) = judge_bootstraps([Bootstrap(name, 6)], {name: found}, "aws://111122223333/us-east-1")
    return finding.state, finding.detail, finding.remedy


@pytest.mark.parametrize("version", ["6", "28"])
def test_a_version_that_suffices_is_ok(version):
    assert judge_one(version) == ("ok", f"the stack requires version 6, the region has {version}", "")


@pytest.mark.parametrize(("version", "text"), [("5", "5"), (None, "none")])
def test_a_missing_or_older_version_is_wrong(version, text):
    command = "cdk bootstrap aws://111122223333/us-east-1"
    assert judge_one(version) == ("wrong", f"the stack requires version 6, the region has {text}", command)
    assert judge_one(version, "/cdk-bootstrap/mine/version")[2] == f"{command} --qualifier mine"


def test_a_version_that_is_not_shown_is_unknown():
    assert judge_one(Refused("no")) == ("unknown", "no", "allow ssm:GetParameter")


def test_stacks_require_the_newest_version_of_each_parameter_and_legacy_ones_none():
    other = "/cdk-bootstrap/mine/version"
    artifacts = [
        {"requiresBootstrapStackVersion": 6, "bootstrapStackVersionSsmParameter": NAME},
        {"requiresBootstrapStackVersion": 8, "bootstrapStackVersionSsmParameter": NAME},
        {"requiresBootstrapStackVersion": 6, "bootstrapStackVersionSsmParameter": other},
        {"requiresBootstrapStackVersion": 7, "bootstrapStackVersionSsmParameter": NAME},
        {"templateFile": "legacy.template.json"},
    ]
    assert list_bootstraps(artifacts) == (Bootstrap(NAME, 8), Bootstrap(other, 6))
    assert list_bootstraps([{}]) == ()


# --- Stack --------------------------------------------------------------------------------------------


def judge(status):
    finding = judge_status("training", status)
    return finding.subject, finding.state, finding.detail


# CloudFormation User Guide, "Stack status codes": neither of the two states has resources.
@pytest.mark.parametrize("status", [None, "REVIEW_IN_PROGRESS", "DELETE_COMPLETE"])
def test_a_stack_without_resources_takes_nothing(status):
    assert judge(status) == ("stack training", "ok", "it is not deployed yet")


@pytest.mark.parametrize("status", ["CREATE_COMPLETE", "ROLLBACK_COMPLETE", "DELETE_FAILED"])
def test_a_deployed_stack_counts_among_what_is_taken_and_fails_nothing(status):
    taken = "its own vCPUs, addresses, private names and mount targets count as taken"
    assert judge(status) == ("stack training", "unknown", f"it is deployed already, {status}: {taken}")
    assert judge_status("training", status).is_advice


def test_a_stack_that_is_not_shown_fails_nothing_and_names_the_right():
    finding = judge_status("training", Refused("no"))
    assert (finding.state, finding.remedy) == ("unknown", "allow cloudformation:DescribeStacks")
    assert finding.is_advice


# --- Capacity Blocks ----------------------------------------------------------------------------------

START = dt.datetime(2026, 12, 1, 11, 30, tzinfo=dt.UTC)
WORKERS = NodeDemand("Workers", "worker", "0", "p5.48xlarge", 3)
OFFER = BlockOffer("cb-1", "us-east-1b", START, START + dt.timedelta(days=1), "2214.72", "USD")
SOLD = Answers(sold_in_blocks=frozenset({"p5.48xlarge"}))


def test_blocks_are_asked_for_workers_that_no_reservation_has():
    fallback = dataclasses.replace(WORKERS, candidate="1", count=2)
    others = [
        dataclasses.replace(WORKERS, role="master", count=9),
        dataclasses.replace(WORKERS, market="reserved", count=9),
        dataclasses.replace(WORKERS, instance_type="g5.12xlarge"),
    ]
    assert list_blocks([*others, fallback, WORKERS], SOLD) == {"p5.48xlarge": 3}
    assert list_blocks([WORKERS], Answers()) == {}


def test_the_soonest_offer_is_advice_with_the_command_that_buys_it():
    (found,) = judge_offers({"p5.48xlarge": 3}, {"p5.48xlarge": OFFER})
    assert (found.subject, found.state, found.is_advice) == ("Capacity Block of 3 p5.48xlarge", "ok", True)
    time = "2026-12-01T11:30Z to 2026-12-02T11:30Z"
    assert found.detail == f"the soonest for 24 h is in us-east-1b, {time}, for 2214.72 USD in advance"
    options = "--capacity-block-offering-id cb-1 --instance-platform Linux/UNIX"
    assert found.remedy == f"to buy it: aws ec2 purchase-capacity-block {options}"


def test_no_offer_is_ok_and_a_refusal_is_unknown_advice():
    (none,) = judge_offers({"p5.48xlarge": 3}, {"p5.48xlarge": None})
    (refused,) = judge_offers({"p5.48xlarge": 3}, {"p5.48xlarge": Refused("no")})
    assert (none.state, none.is_advice) == ("ok", True)
    assert (refused.state, refused.is_advice) == ("unknown", True)
    assert refused.remedy == "allow ec2:DescribeCapacityBlockOfferings"


def describe(name, start):
    keys = "CapacityBlockOfferingId", "AvailabilityZone", "StartDate", "EndDate", "UpfrontFee", "CurrencyCode"
    return dict(zip(keys, (name, "us-east-1b", start, start + dt.timedelta(days=1), "2214.72", "USD"), strict=True))


def test_the_soonest_of_all_offers_is_read():
    ec2 = boto3.client("ec2", region_name="us-east-1")
    operation = "describe_capacity_block_offerings"
    asked = {"InstanceType": "p5.48xlarge", "InstanceCount": 3, "CapacityDurationHours": 24}
    with Stubber(ec2) as stub:
        later = describe("cb-2", START + dt.timedelta(days=2))
        stub.add_response(operation, {"CapacityBlockOfferings": [later], "NextToken": "more"}, asked)
        more = {"CapacityBlockOfferings": [describe("cb-1", START)]}
        stub.add_response(operation, more, asked | {"NextToken": "more"})
        assert read_offers(ec2, {"p5.48xlarge": 3}) == {"p5.48xlarge": OFFER}
        stub.add_response(operation, {"CapacityBlockOfferings": []}, asked)
        assert read_offers(ec2, {"p5.48xlarge": 3}) == {"p5.48xlarge": None}
