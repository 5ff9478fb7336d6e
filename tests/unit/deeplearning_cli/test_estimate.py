"""The estimate reckons a stack by hand-checkable rules, and says what it cannot know."""

import datetime as dt
import json
import shutil

import aws_cdk as cdk
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.estimate import command as estimate_command
from deeplearning_cli.estimate import prices as price_file
from deeplearning_cli.estimate.difference import compare, compare_stacks
from deeplearning_cli.estimate.price_reader import INSTANCES, USAGE
from deeplearning_cli.estimate.prices import UNITS, Price, PriceList, list_prices
from deeplearning_cli.estimate.reckoning import reckon
from deeplearning_cli.estimate.rendering import PriceAge, render_lines, to_document
from deeplearning_cli.estimate.rules import BY_USE, FREE, PRICED, WITH_NODES, is_known
from deeplearning_cli.main import main
from stacks.cluster_stack import make_stack
from stacks.context import read_choices
from tests.gates.presets import PRESETS
from tests.synthesis.golden import read_logical_ids

MONTH = 730.0
OTHER_PLATFORMS = ("AWS::EMR::Cluster", "AWS::EKS::Cluster", "AWS::SageMaker::NotebookInstance")
DATE = dt.date(2026, 7, 20)
USD = {
    "alarm": 0.1,
    "backup-efs": 0.05,
    "dashboard": 3.0,
    "ebs-gp3": 0.08,
    "efs-storage": 0.3,
    "efs-throughput": 6.0,
    "g5.12xlarge": 5.672,
    "g5.24xlarge": 8.144,
    "interface-endpoint": 0.01,
    "kms-key": 1.0,
    "lustre-persistent-125": 0.145,
    "m5.large": 0.096,
    "nat-gateway": 0.045,
    "p5.48xlarge": 55.04,
    "public-ipv4": 0.005,
}


@pytest.fixture(scope="module")
def synthesize(tmp_path_factory):
    """Return a function that synthesizes a preset once, and returns the folder of its assembly."""
    known = {}

    def make(preset, **context):
        key = (preset, *context)
        if key not in known:
            known[key] = tmp_path_factory.mktemp("assembly")
            app = cdk.App(outdir=str(known[key]), analytics_reporting=False, builtin_cloud_formation_validation=False)
            (choice,) = read_choices({**PRESETS[preset], **context})
            make_stack(app, choice)
            app.synth()
        return known[key]

    return make


@pytest.fixture
def price_list():
    return PriceList("us-east-1", {name: Price(name, usd, DATE) for name, usd in USD.items()})


@pytest.fixture
def estimate(synthesize, price_list):
    """Return a function that reckons a preset with the prices above."""

    def make(preset, hours=MONTH, gib=500.0, **context):
        (path,) = synthesize(preset, **context).glob("*.template.json")
        return reckon([json.loads(path.read_text())], price_list, hours=hours, gib=gib)

    return make


def costs(found):
    """Return subject -> USD a month."""
    return {cost.subject: cost.monthly for cost in found.beside}


# --- By hand ------------------------------------------------------------------------------------------

BESIDE = {
    "EFS storage": 150.0,  # 500 GiB * 0.3
    "KMS key": 1.0,
    "NAT gateway": 32.85,  # 0.045 * 730
    "alarms": 0.5,  # 5 * 0.1
    "backup of EFS": 25.0,  # 500 GiB * 0.05
    "dashboard": 3.0,
    "public IPv4 addresses": 3.65,  # 0.005 * 730
}


def test_a_month_of_a_cluster_without_gpus_costs_what_a_reckoning_by_hand_gives(estimate):
    found = estimate("cpu")
    assert costs(found) == pytest.approx(BESIDE)
    (candidate,) = found.candidates
    assert candidate.hourly * MONTH == pytest.approx(328.32)  # 4 * 0.096 * 730 and 4 * 150 GiB * 0.08
    assert found.dearest == pytest.approx(544.32)  # and 216.00 beside the nodes
    assert sum(cost.monthly for cost in found.beside if cost.is_retained) == pytest.approx(176.0)
    assert estimate("cpu", hours=12).dearest == pytest.approx(8.94772603)  # 544.32 * 12 / 730


def test_a_month_with_lustre_costs_what_a_reckoning_by_hand_gives(estimate):
    found = estimate("lustre-with-data")
    assert costs(found) == pytest.approx(
        BESIDE
        | {
            "EFS provisioned throughput": 1389.515625,  # (256 - 500 * 50 / 1024) MiB/s * 6
            "FSx for Lustre": 348.0,  # 2400 GiB * 0.145
        }
    )
    assert found.dearest == pytest.approx(2281.835625)  # 1953.515625 beside 328.32
    # The file system, its throughput, its key and its backups; Lustre is deleted with a new VPC.
    assert sum(cost.monthly for cost in found.beside if cost.is_retained) == pytest.approx(1565.515625)


def test_candidates_are_reckoned_in_the_order_in_which_they_are_asked(estimate):
    found = estimate("fallbacks", hours=12)
    first, second, spot, larger = found.candidates
    assert [each.name.rpartition("-")[0] for each in (second, spot, larger)] == [
        "us-east-1b-g5.12xlarge-on-demand",
        "us-east-1b-g5.12xlarge-spot",
        "us-east-1c-g5.24xlarge-on-demand",
    ]
    assert first.hourly == pytest.approx(22.75375342)  # 4 * 5.672 and 600 GiB * 0.08 / 730
    assert first.refused == pytest.approx(2.275375342)  # patience of 180 s, and 180 s to take them back
    assert larger.hourly == pytest.approx(32.64175342)
    beside = 216.1 / MONTH  # one alarm more than above
    assert found.everything(0) == pytest.approx(12 * (22.75375342 + beside))
    assert found.dearest == pytest.approx(12 * (32.64175342 + beside) + 3 * 2.275375342)
    assert ["the most that spot costs" in node.note for node in spot.nodes] == [False, True]


def test_a_candidate_without_fallbacks_is_never_refused_for_another(estimate, price_list):
    age = PriceAge.find(price_list, DATE)
    found = {preset: estimate(preset) for preset in ("cpu", "fallbacks")}
    assert [each.refused for each in found["cpu"].candidates] == [0]
    assert ["further round" in " ".join(render_lines(each, age)) for each in found.values()] == [False, True]


# --- Two stacks ---------------------------------------------------------------------------------------

MORE_WORKERS = {"workers.desired_capacity": "5"}


def shares_of(shares):
    """Return subject -> USD."""
    return {share.subject: share.usd for share in shares}


def test_the_difference_of_two_stacks_is_what_a_reckoning_by_hand_gives(estimate):
    (found,) = compare(estimate("cpu"), estimate("cpu", **MORE_WORKERS))
    assert found.usd == pytest.approx(164.16)
    assert shares_of(found.shares) == pytest.approx(
        {"worker": 140.16, "root volumes and public addresses": 24.0}  # 2 * 0.096 * 730, and 2 * 150 GiB * 0.08
    )
    (found,) = compare(estimate("cpu"), estimate("lustre-with-data"))
    assert found.usd == pytest.approx(1737.515625)
    assert shares_of(found.shares) == pytest.approx({"beside the nodes": 1737.515625})
    beside = compare_stacks(estimate("cpu"), estimate("lustre-with-data"))
    assert shares_of(beside) == pytest.approx({"EFS provisioned throughput": 1389.515625, "FSx for Lustre": 348.0})
    assert {share.first for share in beside} == {"none"}


@pytest.mark.parametrize("pair", [("cpu", "fallbacks"), ("fallbacks", "cpu"), ("cpu", "private"), ("cpu", "cpu")])
def test_what_makes_a_difference_adds_up_to_it(estimate, pair):
    first, second = map(estimate, pair)
    for found in compare(first, second):
        assert sum(share.usd for share in found.shares) == pytest.approx(found.usd or 0.0)
        assert (found.usd is None) is (found.candidate != "0")
    beside = (second.beside_hourly - first.beside_hourly) * MONTH
    assert sum(share.usd for share in compare_stacks(first, second)) == pytest.approx(beside)


def test_candidates_that_refuse_before_another_are_a_share_of_its_difference(estimate):
    first, second = estimate("fallbacks"), estimate("fallbacks", **MORE_WORKERS)
    assert [each.usd is None for each in compare(first, second)] == [False] * 4
    refused = [
        shares_of(each.shares).get("candidates before it, each refused once", 0.0) for each in compare(first, second)
    ]
    # 360 s of 2 more g5.12xlarge with 150 GiB each, for each candidate before; all but the last have that type.
    once = (2 * 5.672 + 300 * 0.08 / MONTH) / 10
    assert refused == pytest.approx([0.0, once, 2 * once, 3 * once])


def test_the_command_prints_the_difference_and_judges_the_second_stack(synthesize, run):
    first, second = synthesize("fallbacks"), synthesize("fallbacks", **MORE_WORKERS)
    status, out, err = run(first, second)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("prices of 2026-03-31 and later, us-east-1")
    assert lines[1].startswith("everything with candidate 0: USD +1")
    assert lines[2] == "  worker: USD +136.13, 3 g5.12xlarge -> 5 g5.12xlarge"
    assert any(line.startswith("after the end of the cluster: USD +0.00, from USD ") for line in lines)
    document = json.loads(run(first, second, "--json")[1])
    totals = [max(each["usd_everything"] for each in document[name]["candidates"]) for name in ("first", "second")]
    assert document["candidates"][0]["shares"][0]["usd"] == pytest.approx(136.128)
    between = sum(totals) / 2
    assert [run(*pair, "--at-most", between)[0] for pair in ((first, second), (second, first))] == [1, 0]


def test_a_difference_of_old_prices_is_a_ratio_and_names_what_costs_by_use(synthesize, run):
    pair, late = (synthesize("cpu"), synthesize("lustre-with-data")), DATE + dt.timedelta(days=400)
    status, out, _ = run(*pair, today=late)
    assert (status, "USD +" in out, "times the first" in out) == (0, False, True)
    assert "only in the second, in no total: " in out
    assert set(json.loads(run(*pair, "--json", today=late)[1])) == {"first", "second"}
    assert run(*pair, "--at-most", 10**6, today=late)[0] == 2


# --- What has a rule ----------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_every_type_of_every_preset_on_ec2_has_a_rule(preset):
    kinds = {entry.partition(" ")[2] for entry in read_logical_ids(preset)}
    if not kinds & set(OTHER_PLATFORMS):
        assert [kind for kind in sorted(kinds) if not is_known(kind)] == []


def test_a_type_has_one_rule():
    lists = [set(PRICED), set(WITH_NODES), set(BY_USE), set(FREE)]
    assert sum(map(len, lists)) == len(set.union(*lists))


@pytest.mark.parametrize("preset", ["private", "public-master", "existing-vpc-and-efs", "customer-key"])
def test_what_a_preset_has_beside_the_default_is_in_its_estimate(estimate, preset):
    found = costs(estimate(preset))
    if preset == "private":
        assert found["interface endpoints"] == pytest.approx(43.8)  # 6 * 0.01 * 730
        assert "NAT gateway" not in found
    if preset == "existing-vpc-and-efs":
        assert not {"EFS storage", "backup of EFS", "NAT gateway"} & set(found)
    assert ("KMS key" in found) is (preset != "customer-key")
    (candidate,) = estimate(preset).candidates
    extras = sum(node.extras for node in candidate.nodes)
    assert extras == pytest.approx(48 / MONTH + (0.005 if preset == "public-master" else 0))


def test_nodes_of_a_capacity_block_are_paid_already(estimate):
    (candidate,) = estimate("capacity-block").candidates
    assert {node.role: node.instances for node in candidate.nodes} == pytest.approx({"master": 55.04, "worker": 0.0})


# --- Prices -------------------------------------------------------------------------------------------


def test_every_price_has_a_date_and_a_source():
    entries = json.loads(price_file.FILE.read_text())["sets"]
    for entry in entries:
        assert dt.date.fromisoformat(entry["date"])
        assert entry["source"]
        for prices in entry["regions"].values():
            assert all(usd > 0 for usd in prices.values())
            assert all("." in name or name in UNITS for name in prices)
    assert {*UNITS} <= {*list_prices("us-east-1", {}).known}


def test_the_newest_price_of_a_name_is_taken_and_a_given_one_before_it(monkeypatch):
    sets = [{"date": date, "regions": {"r": {"a1.large": usd}}} for date, usd in (("2026-02-01", 2), ("2026-01-01", 1))]
    monkeypatch.setattr(price_file, "_read_sets", lambda: tuple(sets))
    assert list_prices("r", {}).known["a1.large"] == Price("a1.large", 2.0, dt.date(2026, 2, 1))
    assert list_prices("r", {"a1.large": 3.0}).known["a1.large"] == Price("a1.large", 3.0, None)


@pytest.mark.parametrize(("days", "words"), [(90, ""), (91, "over 90 days old"), (365, "over 90 days old")])
def test_old_prices_are_said_first(estimate, price_list, days, words):
    lines = render_lines(estimate("cpu"), PriceAge.find(price_list, DATE + dt.timedelta(days=days)))
    assert lines[0].startswith("prices of 2026-07-20 and later, us-east-1")
    assert (words in lines[0], "old" in lines[0]) == (True, bool(words))
    assert any("everything with candidate 0: USD 544.32" in line for line in lines)


def test_prices_of_another_year_give_ratios_alone(estimate, price_list):
    found, age = estimate("fallbacks"), PriceAge.find(price_list, DATE + dt.timedelta(days=366))
    lines = render_lines(found, age)
    assert "only ratios follow" in lines[0]
    assert any(line.endswith("1.43 times candidate 0") for line in lines)
    assert not [line for line in lines[1:] if "USD" in line]
    assert "usd" not in json.dumps(to_document(found, age))


# --- The command --------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys, monkeypatch):
    """Return a function that runs the command on a day, and returns exit status, output and errors."""

    def command(*arguments, today=DATE):
        monkeypatch.setattr(estimate_command, "read_today", lambda: today)
        status = main(["estimate", *map(str, arguments)])
        return status, *capsys.readouterr()

    return command


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_same_stack_gives_the_same_bytes(synthesize, run, options):
    answers = {run(synthesize("fallbacks"), "--hours", 12, *options) for _ in range(2)}
    ((status, out, err),) = answers
    assert (status, err) == (0, "")
    assert "g5.24xlarge" in out
    assert "us-east-1" in out, "the region of the stack"


def test_the_exit_status_says_whether_the_dearest_candidate_is_within_a_limit(synthesize, run):
    folder = synthesize("fallbacks")
    dearest = max(each["usd_everything"] for each in json.loads(run(folder, "--json")[1])["candidates"])
    assert run(folder, "--at-most", dearest + 0.01)[0] == 0
    assert run(folder, "--at-most", dearest - 0.01)[0] == 1
    assert run(folder, "--at-most", dearest + 0.01, today=DATE + dt.timedelta(days=400))[0] == 2


def test_a_resource_without_a_rule_is_named_and_no_limit_that_it_may_exceed_is_answered(synthesize, run, tmp_path):
    folder = shutil.copytree(synthesize("cpu"), tmp_path / "assembly")
    (path,) = folder.glob("*.template.json")
    template = json.loads(path.read_text())
    template["Resources"]["Database"] = {"Type": "AWS::RDS::DBInstance"}
    path.write_text(json.dumps(template))
    assert [run(folder, *limit)[0] for limit in (("--at-most", 10), ("--at-most", 1))] == [2, 1]
    status, out, _ = run(folder)
    assert status == 0
    assert "not reckoned, no rule: AWS::RDS::DBInstance Database" in out.splitlines()


def test_a_missing_price_is_named_with_the_option_that_gives_it(synthesize, run):
    status, _, err = run(synthesize("cpu"), "--region", "eu-west-1")
    assert status == 2
    assert "no price for alarm (USD per month), " in err
    assert "m5.large (USD per hour), " in err
    assert "in eu-west-1; give --price alarm=USD " in err
    given = [word for name, usd in USD.items() for word in ("--price", f"{name}={usd}")]
    status, out, _ = run(synthesize("cpu"), "--region", "eu-west-1", "--hours", MONTH, *given)
    assert status == 0
    assert out.startswith("prices as given, eu-west-1\n")
    assert "everything with candidate 0: USD 544.32" in out


@pytest.mark.parametrize(("preset", "name"), [("emr", "EMR"), ("eks", "EKS"), ("sagemaker", "SageMaker")])
def test_a_cluster_of_another_platform_is_refused_by_name(synthesize, run, preset, name):
    status, _, err = run(synthesize(preset))
    assert status == 2
    assert f"must be a cluster on EC2, got one on {name}; estimate reads clusters on EC2" in err


@pytest.mark.parametrize(
    ("option", "value"), [("--hours", "-1"), ("--gb", "nan"), ("--at-most", "much"), ("--price", "p5=")]
)
def test_an_amount_that_is_none_is_refused(run, capsys, option, value):
    with pytest.raises(SystemExit) as ended:
        run("cdk.out", option, value)
    assert ended.value.code == 2
    assert "must be a number of 0 or more, got" in capsys.readouterr().err


# --- Live prices --------------------------------------------------------------------------------------


class Pricing:
    """AWS's price list, which has some names for a tenth of the prices above, or raises an error."""

    def __init__(self, *names, error=None):
        self.names, self.error, self.asked = names, error, []

    def get_paginator(self, operation):
        assert operation == "get_products"
        return self

    def paginate(self, **question):
        self.asked.append((question["ServiceCode"], {each["Field"]: each["Value"] for each in question["Filters"]}))
        if self.error:
            raise self.error
        return [{"PriceList": [self.make_product(name) for name in self.names]}]

    @staticmethod
    def make_product(name):
        attributes = {"usagetype": USAGE[name][1] if name in USAGE else f"BoxUsage:{name}", "instanceType": name}
        dimensions = {"paid": {"pricePerUnit": {"USD": str(USD[name] / 10)}}}
        return json.dumps(
            {"product": {"attributes": attributes}, "terms": {"OnDemand": {"term": {"priceDimensions": dimensions}}}}
        )


@pytest.fixture
def pricing(monkeypatch):
    """Return a function that gives the command a price list, and remembers of which region its client is."""

    def give(*names, error=None):
        made = Pricing(*names, error=error)

        def open_cloud(arguments):
            made.region = arguments.region
            return CloudAccess({"pricing": made}.__getitem__, arguments.region, None)

        monkeypatch.setattr(estimate_command, "open_cloud", open_cloud)
        return made

    return give


NEEDED = {
    *("alarm", "backup-efs", "dashboard", "ebs-gp3", "efs-storage", "kms-key", "m5.large", "nat-gateway"),
    "public-ipv4",
}
"""Prices of the preset without GPUs."""


def test_live_prices_are_read_for_what_the_stack_has_and_replace_those_of_the_file(synthesize, run, pricing):
    aws = pricing(*NEEDED)
    status, out, err = run(synthesize("cpu"), "--live", "--hours", MONTH)
    assert (status, err) == (0, "")
    assert out.startswith(f"prices of {DATE} and later, us-east-1\n")
    assert "everything with candidate 0: USD 54.43 " in out
    assert aws.region == "us-east-1"
    assert sorted(service for service, _ in aws.asked) == sorted(
        ["AmazonEC2", *(USAGE[name][0] for name in NEEDED if name in USAGE)]
    )
    assert ("AmazonEC2", {**INSTANCES, "regionCode": "us-east-1", "instanceType": "m5.large"}) in aws.asked


def test_a_price_that_the_price_list_lacks_is_the_files_and_a_given_one_is_not_asked_for(synthesize, run, pricing):
    aws = pricing(*NEEDED - {"m5.large"})
    status, out, _ = run(synthesize("cpu"), "--live")
    assert (status, out.splitlines()[0].startswith("prices of 2026-0")) == (0, True)
    asked = len(aws.asked)
    out = run(synthesize("cpu"), "--live", "--price", "m5.large=0.096")[1]
    assert out.startswith(f"prices of {DATE} and later")
    assert len(aws.asked) == 2 * asked - 1


def test_live_prices_give_totals_where_those_of_the_file_are_too_old(synthesize, run, pricing):
    pricing(*NEEDED)
    late = DATE + dt.timedelta(days=400)
    assert [run(synthesize("cpu"), *live, "--at-most", 100, today=late)[0] for live in ((), ("--live",))] == [2, 0]


def test_a_price_list_that_does_not_answer_ends_with_2_and_names_the_right(synthesize, run, pricing):
    pricing(error=EndpointConnectionError(endpoint_url="https://api.pricing.us-east-1.amazonaws.com"))
    status, out, err = run(synthesize("cpu"), "--live")
    assert (status, out) == (2, "")
    assert "Could not connect to the endpoint URL" in err
    assert "allow pricing:GetProducts to the credentials of AWS, or leave out --live" in err
    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}, "GetProducts")
    pricing(error=denied)
    status, _, err = run(synthesize("cpu"), "--live")
    assert (status, "not authorized; allow pricing:GetProducts" in err) == (2, True)
