# ruff: noqa: INP001 - cli/ is a source root, and this script is not part of the command
"""
Write the prices of the catalogue's instance types, and of what a cluster has beside them, from AWS's price list.

    python cli/write_prices.py us-east-1 eu-west-1

The arguments are regions. It needs credentials with the right `pricing:GetProducts`. Prices that it does not find keep
those of earlier sets, with their dates; it names them. Review the difference, and commit the result.

The usage types are those of AWS's price list and bills; regions other than us-east-1 put a prefix before them.
"""

import datetime as dt
import json
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import boto3

from deeplearning_cli.estimate.prices import FILE, UNITS

CATALOG = Path(__file__).parents[1] / "constructs" / "deeplearning_cdk" / "catalog" / "instance_catalog.json"
PRICING_REGION = "us-east-1"
"""One of the regions that have the price list's endpoint."""
INSTANCES = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
USAGE = {
    "alarm": ("AmazonCloudWatch", "CW:AlarmMonitorUsage"),
    "backup-efs": ("AWSBackup", "WarmStorage-ByteHrs-EFS"),
    "dashboard": ("AmazonCloudWatch", "DashboardsUsageHour"),
    "ebs-gp3": ("AmazonEC2", "EBS:VolumeUsage.gp3"),
    "efs-storage": ("AmazonEFS", "TimedStorage-ByteHrs"),
    "efs-throughput": ("AmazonEFS", "ProvisionedTP-MiBpsHrs"),
    "interface-endpoint": ("AmazonVPC", "VpcEndpoint-Hours"),
    "kms-key": ("awskms", "KMS-Keys"),
    "nat-gateway": ("AmazonEC2", "NatGateway-Hours"),
    "public-ipv4": ("AmazonVPC", "PublicIPv4:InUseAddress"),
}
"""Price -> code of the service, and end of the usage type. FSx for Lustre has no such end, so its sets are kept."""


def main(regions: list[str], pricing: Any, today: dt.date) -> None:
    """Write the prices of regions, and say which are not in the answers."""
    found = {region: read_region(pricing, region) for region in regions}
    for region, prices in found.items():
        if missing := sorted(UNITS.keys() - prices.keys()):
            sys.stderr.write(f"{region}: no price of {', '.join(missing)} was read\n")
    source = "pricing:GetProducts, On-Demand, Linux"
    FILE.write_text(render([*drop(json.loads(FILE.read_text())["sets"], found), make_set(today, source, found)]))


def read_region(pricing: Any, region: str) -> dict[str, float]:
    """Return name -> USD for the catalogue's types and the other prices of a region."""
    types = json.loads(CATALOG.read_text())["types"]
    prices = {}
    for product in list_products(pricing, "AmazonEC2", {**INSTANCES, "regionCode": region}):
        name = product["product"]["attributes"].get("instanceType", "")
        if name in types and (usd := read_usd(product)):
            prices[name] = usd
    for name, (service, usage) in USAGE.items():
        place = {} if name == "dashboard" else {"regionCode": region}
        for product in list_products(pricing, service, place):
            if re.fullmatch(rf"([A-Z0-9]+-)?{re.escape(usage)}", product["product"]["attributes"]["usagetype"]):
                prices[name] = read_usd(product)
    return prices


def list_products(pricing: Any, service: str, wanted: Mapping[str, str]) -> Iterator[Any]:
    """Return the products of a service whose attributes have the wanted values."""
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    for page in pricing.get_paginator("get_products").paginate(ServiceCode=service, Filters=filters):
        yield from map(json.loads, page["PriceList"])


def read_usd(product: Mapping[str, Any]) -> float:
    """Return the highest On-Demand price of a product, which is that of its first tier behind a free one."""
    terms = product["terms"].get("OnDemand", {}).values()
    return max(
        (float(each["pricePerUnit"]["USD"]) for term in terms for each in term["priceDimensions"].values()), default=0.0
    )


def make_set(date: dt.date, source: str, regions: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return a set of prices, as the file has it."""
    return {"date": date.isoformat(), "source": source, "regions": regions}


def drop(sets: list[Any], found: Mapping[str, Mapping[str, float]]) -> list[Any]:
    """Return sets without the prices that were found anew."""
    return [
        {
            **each,
            "regions": {
                region: {name: usd for name, usd in prices.items() if name not in found.get(region, {})}
                for region, prices in each["regions"].items()
            },
        }
        for each in sets
    ]


def render(sets: list[Any]) -> str:
    """Return the file, with a line for each family of types, so that differences are readable."""
    texts = []
    for each in sets:
        regions = [
            f"{json.dumps(name)}: {_render_prices(prices)}"
            for name, prices in sorted(each["regions"].items())
            if prices
        ]
        head = f'"date": {json.dumps(each["date"])},\n"source": {json.dumps(each["source"])},\n"regions": '
        texts.append("{\n" + head + "{\n" + ",\n".join(regions) + "\n}\n}")
    return '{\n"sets": [\n' + ",\n".join(texts) + "\n]\n}\n"


def _render_prices(prices: Mapping[str, float]) -> str:
    families = groupby(sorted(prices), key=lambda name: name.split(".", maxsplit=1)[0])
    lines = [", ".join(f"{json.dumps(name)}: {prices[name]:.10g}" for name in names) for _, names in families]
    return "{\n" + ",\n".join(lines) + "\n}"


if __name__ == "__main__":
    main(sys.argv[1:], boto3.client("pricing", region_name=PRICING_REGION), dt.datetime.now(tz=dt.UTC).date())
