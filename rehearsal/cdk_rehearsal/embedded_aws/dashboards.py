"""The metrics that a dashboard of CloudWatch shows, those of its searches too."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

MetricCheck = Callable[[str, str, Collection[str]], None]
"""Raises AssemblyError for a metric that nothing writes, by its namespace, name and names of dimensions."""
_SEARCH = re.compile(r"\{(?P<namespace>[^,}]+),(?P<dimensions>[\w,]+)\}[^']*?MetricName=\"(?P<name>[^\"]+)\"")


def list_metrics(body: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield namespace, name and dimensions of every metric of a dashboard's body."""
    rows = (row for widget in body["widgets"] for row in widget["properties"].get("metrics", ()))
    for row in rows:
        if isinstance(row[0], str):
            names = [part for part in row if isinstance(part, str)]
            yield names[0], names[1], tuple(names[2::2])
            continue
        for found in _SEARCH.finditer(row[0].get("expression", "")):
            yield found["namespace"], found["name"], tuple(found["dimensions"].split(","))
