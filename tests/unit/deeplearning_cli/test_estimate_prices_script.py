"""The script of the prices reads AWS's price list, and keeps the prices that it does not find."""

import datetime as dt
import importlib.util
import json
import sys
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber

from deeplearning_cli.estimate.price_reader import INSTANCES, USAGE
from deeplearning_cli.estimate.prices import UNITS

DATE = dt.date(2026, 11, 27)
REGION = {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "eu-west-1"}


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Return the module of the script, whose file is a copy with a set of old prices."""
    path = Path(__file__).parents[3] / "cli" / "write_prices.py"
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("write_prices", path))
    module.__spec__.loader.exec_module(module)
    old = {"date": "2026-01-21", "source": "before", "regions": {"eu-west-1": {"m5.large": 1.0, "p9.large": 2.0}}}
    monkeypatch.setattr(module, "FILE", tmp_path / "prices.json")
    module.FILE.write_text(module.render([old]))
    return module


def make_product(usage, usd, **attributes):
    """Return a product of the price list, with a free tier and a price."""
    tiers = {
        "free": {"beginRange": "0", "pricePerUnit": {"USD": "0.0"}},
        "paid": {"beginRange": "10", "pricePerUnit": {"USD": usd}},
    }
    return json.dumps(
        {
            "product": {"attributes": {"usagetype": usage, **attributes}},
            "terms": {"OnDemand": {"term": {"priceDimensions": tiers}}},
        }
    )


def add_answers(stub, answers):
    """Add an answer to each question of the script, in two pages where there are two lists."""

    def add(service, filters, pages):
        for number, page in enumerate(pages):
            asked = {"ServiceCode": service, "Filters": filters} | ({"NextToken": "more"} if number else {})
            more = {"NextToken": "more"} if number + 1 < len(pages) else {}
            stub.add_response("get_products", {"PriceList": page, **more}, asked)

    terms = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in INSTANCES.items()]
    add("AmazonEC2", [*terms, REGION], answers["instances"])
    for name, (service, _) in USAGE.items():
        add(service, [] if name == "dashboard" else [REGION], [answers.get(name, [])])


def test_prices_of_the_catalogues_types_and_of_the_services_are_written(script, capsys):
    pricing = boto3.client("pricing", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    instances = [
        [make_product("EU-BoxUsage:m5.large", "0.107", instanceType="m5.large")],
        [make_product("EU-BoxUsage:z0.large", "0.5", instanceType="z0.large")],
    ]
    gateways = [
        make_product("EU-NatGateway-Hours", "0.048"),
        make_product("EU-RegionalNatGateway-Hours", "0.9"),
        make_product("EU-NatGateway-Bytes", "0.9"),
    ]
    answers = {"instances": instances, "nat-gateway": gateways, "dashboard": [make_product("DashboardsUsageHour", "3")]}
    with Stubber(pricing) as stub:
        add_answers(stub, answers)
        script.main(["eu-west-1"], pricing, DATE)
        stub.assert_no_pending_responses()
    old, new = json.loads(script.FILE.read_text())["sets"]
    assert old["regions"] == {"eu-west-1": {"p9.large": 2.0}}
    assert new["date"] == "2026-11-27"
    assert new["regions"] == {"eu-west-1": {"dashboard": 3.0, "m5.large": 0.107, "nat-gateway": 0.048}}
    missing = ", ".join(sorted(UNITS.keys() - {"dashboard", "nat-gateway"}))
    assert capsys.readouterr().err == f"eu-west-1: no price of {missing} was read\n"


def test_the_file_is_as_the_script_renders_it(script):
    text = Path(sys.modules["deeplearning_cli.estimate.prices"].FILE).read_text()
    assert script.render(json.loads(text)["sets"]) == text
