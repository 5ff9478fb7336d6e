# ruff: noqa: INP001 - cli/ is a source root, and this script is not part of the command
"""
Write the prices of the catalogue's instance types, and of what a cluster has beside them, from AWS's price list.

    python cli/write_prices.py us-east-1 eu-west-1

The arguments are regions. It needs credentials with the right `pricing:GetProducts`. Prices that it does not find keep
those of earlier sets, with their dates; it names them. Review the difference, and commit the result.
"""

import datetime as dt
import json
import sys
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import boto3

from deeplearning_cli.estimate.price_reader import PRICING_REGION, USAGE, read_instances, read_services
from deeplearning_cli.estimate.prices import FILE, UNITS

CATALOG = Path(__file__).parents[1] / "constructs" / "deeplearning_cdk" / "catalog" / "instance_catalog.json"


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
    return read_instances(pricing, region, types) | read_services(pricing, region, USAGE)


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
