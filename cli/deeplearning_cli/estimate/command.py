"""`deeplearning-cdk estimate`: reckons what a stack costs, before anything is deployed."""

import argparse
import datetime as dt
import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path

from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.manifest import find_stacks
from deeplearning_cli.arguments import Commands
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UNAVAILABLE, UnavailableError, report_error
from deeplearning_cli.estimate.difference import describe_difference, render_difference
from deeplearning_cli.estimate.price_reader import PRICING_REGION, RIGHT, read_prices
from deeplearning_cli.estimate.prices import UNITS, Price, list_prices
from deeplearning_cli.estimate.reckoning import Estimate, list_names, reckon
from deeplearning_cli.estimate.rendering import PriceAge, render_lines, to_document
from deeplearning_rehearsal.platforms.registry import PLATFORMS
from deeplearning_rehearsal.template import read_cluster

EXCEEDED = 1
DEFAULT_REGION = "us-east-1"
_AT_MOST = "end with 1 if the dearest candidate with everything costs more; of two assemblies, the second's"
NAMES = {"ec2": "EC2", "emr": "EMR", "sagemaker": "SageMaker", "eks": "EKS"}


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "estimate",
        help="reckon what a stack costs, before it is deployed",
        description="Reckon what a synthesized cluster on EC2 costs: its nodes for each candidate, what the stack has "
        "beside them, and what stays after the cluster's end and the stack's deletion. Of two assemblies, it prints "
        "the difference of the totals, and what makes it. Offline, with the prices that come with this version, and "
        "their dates, or with --live those of AWS's price list.",
        epilog="exit status: 0 reckoned, 1 more than --at-most, 2 it cannot be reckoned, or not whether it is "
        "within --at-most, 130 interrupted; example: "
        "cdk synth --quiet && deeplearning-cdk estimate --hours 12 --gb 500; prices beside those of instance types: "
        f"{', '.join(UNITS)}",
    )
    add = parser.add_argument
    add("assembly", nargs="?", default="cdk.out", help="the cloud assembly of `cdk synth` (default: %(default)s)")
    add("changed", nargs="?", help="a second assembly, of which the difference to the first is printed")
    add("--stack", metavar="NAME", help="which stack of the assembly (default: the only one that is a cluster)")
    add("--region", metavar="REGION", help=f"AWS region (default: the stack's, or {DEFAULT_REGION})")
    add("--hours", type=_amount, default=12.0, metavar="H", help="hours that the nodes run (default: 12)")
    add("--gb", type=_amount, default=500.0, metavar="GB", help="data on a new EFS file system, in GiB (default: 500)")
    add("--price", action="append", type=_price, default=[], metavar="NAME=USD", help="a price of today; repeatable")
    add("--live", action="store_true", help=f"read today's prices from AWS (right: {RIGHT}, on AWS_PROFILE)")
    add("--at-most", type=_amount, metavar="USD", help=_AT_MOST)
    add("--json", action="store_true", help="print a JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the estimate; return 0, 1 or 2 as the help says."""
    try:
        today = read_today()
        folders = [folder for folder in (arguments.assembly, arguments.changed) if folder is not None]
        found = [_reckon(arguments, Path(folder).resolve(), today) for folder in folders]
        status = _judge(*found[-1], arguments.at_most)
    except (AssemblyError, UnavailableError) as error:
        return report_error(error, as_json=arguments.json)
    if arguments.json:
        document = to_document(*found[0]) if len(found) == 1 else describe_difference(*found)
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(render_lines(*found[0]) if len(found) == 1 else render_difference(*found)))
    return status


def read_today() -> dt.date:
    """Return the date, by which the age of prices is judged."""
    return dt.datetime.now(tz=dt.UTC).date()


def _reckon(arguments: argparse.Namespace, assembly: Path, today: dt.date) -> tuple[Estimate, PriceAge]:
    stack = read_cluster(assembly, arguments.stack)
    platform = next(name for name, each in PLATFORMS.items() if each.owns(stack.template))
    if platform != "ec2":
        raise UnavailableError(
            f"stack {stack.name} must be a cluster on EC2, got one on {NAMES[platform]}; estimate reads clusters "
            "on EC2, AWS's calculator has the others"
        )
    entry = next(each.entry for each in find_stacks(assembly) if each.path == stack.path)
    own = str(entry.get("environment", "")).rpartition("/")[2]
    region = arguments.region or (own if own not in ("", "unknown-region") else DEFAULT_REGION)
    given = dict(arguments.price)
    names = list_names(stack.templates, arguments.gb) - given.keys() if arguments.live else set()
    prices = list_prices(region, given, _read_live(region, names, today) if names else None)
    estimate = reckon(stack.templates, prices, hours=arguments.hours, gib=arguments.gb)
    return estimate, PriceAge.find(prices, today)


def _read_live(region: str, names: Collection[str], today: dt.date) -> Mapping[str, Price]:
    """Return name -> today's price, of those names that AWS's price list has."""
    access = open_cloud(argparse.Namespace(rehearsal=None, profile=None, region=PRICING_REGION, stack=None))
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow, and only --live needs it

    try:
        found = read_prices(access.clients("pricing"), region, names)
    except (BotoCoreError, ClientError) as error:
        raise UnavailableError(f"{error}; allow {RIGHT} to the credentials of AWS, or leave out --live") from error
    return {name: Price(name, usd, today) for name, usd in found.items()}


def _judge(estimate: Estimate, age: PriceAge, at_most: float | None) -> int:
    """Return the exit status of an estimate; 2 where it does not answer whether it is within the limit."""
    if at_most is None:
        return 0
    if not age.allows_totals:
        return UNAVAILABLE
    if estimate.dearest > at_most:
        return EXCEEDED
    return UNAVAILABLE if estimate.unknown else 0


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of 0 or more, got {text!r}")
    return number


def _price(text: str) -> tuple[str, float]:
    name, is_given, usd = text.partition("=")
    if not name or not is_given:
        raise argparse.ArgumentTypeError(f"must be NAME=USD, such as p5.48xlarge=55.04, got {text!r}")
    return name, _amount(usd)
