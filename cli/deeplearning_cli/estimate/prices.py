"""
Prices of AWS in USD, with their dates.

`prices.json` has sets of prices with a date and a source each: region -> name -> USD. Prices of instance types are
On-Demand, Linux and for an hour; `UNITS` has the units of the others. Months are 730 hours.

Where AWS bills a GB it means a GiB: Amazon EC2 API Reference, `VolumeDetail` (the size of a volume, in GiB); Amazon EFS
user guide, "How Amazon EFS reports file system and object sizes" (in KiB); Amazon FSx API Reference,
`CreateFileSystem` (`StorageCapacity`, in GiB).
"""

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from deeplearning_cli.errors import UnavailableError

FILE = Path(__file__).with_name("prices.json")
HOURS_A_MONTH = 730
"""Of AWS's own calculator, which averages a year."""
UNITS = {
    "alarm": "month",
    "backup-efs": "GiB-month",
    "dashboard": "month",
    "ebs-gp3": "GiB-month",
    "efs-storage": "GiB-month",
    "efs-throughput": "MiB/s-month",
    "interface-endpoint": "hour",
    "kms-key": "month",
    "lustre-persistent-1000": "GiB-month",
    "lustre-persistent-125": "GiB-month",
    "lustre-persistent-250": "GiB-month",
    "lustre-persistent-500": "GiB-month",
    "lustre-scratch": "GiB-month",
    "nat-gateway": "hour",
    "public-ipv4": "hour",
}
"""Price that is no instance type's -> what it is for."""


@dataclass(frozen=True)
class Price:
    """
    A price.

    Attributes:
        name: Instance type, or name in `UNITS`.
        usd: USD for a unit.
        date: Date on which it was right; None for one that the user gives.
    """

    name: str
    usd: float
    date: dt.date | None

    @property
    def hourly(self) -> float:
        """USD for an hour."""
        return self.usd / HOURS_A_MONTH if UNITS.get(self.name, "hour").endswith("month") else self.usd


@dataclass
class PriceList:
    """
    Prices of a region. It notes which were asked for, and which of these it lacks.

    Attributes:
        region: The region.
        known: Name -> price.
        used: Prices that were asked for.
        missing: Names that were asked for and have no price.
    """

    region: str
    known: Mapping[str, Price]
    used: dict[str, Price] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)

    def find(self, name: str) -> Price:
        """Return the price of a name; 0 for a missing one, which `require_all` reports."""
        if price := self.known.get(name):
            self.used[name] = price
            return price
        self.missing.add(name)
        return Price(name, 0.0, None)

    def require_all(self) -> None:
        """
        Require that every price that was asked for is known.

        Raises:
            UnavailableError: Prices are missing; the message names them, and the options that give them.
        """
        if self.missing:
            names = sorted(self.missing)
            wanted = ", ".join(f"{name} (USD per {UNITS.get(name, 'hour')})" for name in names)
            options = " ".join(f"--price {name}=USD" for name in names)
            raise UnavailableError(f"no price for {wanted} in {self.region}; give {options}")

    def find_oldest(self) -> dt.date | None:
        """Return the date of the oldest price that was used; None where the user gave them all."""
        return min((price.date for price in self.used.values() if price.date), default=None)


def list_prices(region: str, given: Mapping[str, float], live: Mapping[str, Price] | None = None) -> PriceList:
    """Return the prices of a region: those that the user gives, before live ones, before those of the file."""
    known: dict[str, Price] = {}
    for entry in sorted(_read_sets(), key=lambda entry: str(entry["date"])):
        date = dt.date.fromisoformat(entry["date"])
        prices = entry["regions"].get(region, {})
        known |= {name: Price(name, float(usd), date) for name, usd in prices.items()}
    return PriceList(region, known | dict(live or {}) | {name: Price(name, usd, None) for name, usd in given.items()})


@cache
def _read_sets() -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads(FILE.read_text())["sets"])
