"""Refuses alarms and dashboards whose metrics nodes and Lambda never write: AWS would show nothing for ever."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cdk_rehearsal.errors import AssemblyError
from deeplearning_contract.metrics import METRICS, NAMESPACE

_KNOWN = {(metric.name, frozenset(names)) for metric in METRICS for names in metric.dimensions}
_SEARCH = re.compile(rf"\{{{re.escape(NAMESPACE)},(?P<dimensions>[\w,]+)\}}[^']*?MetricName=\"(?P<name>[^\"]+)\"")


def require_known_metric(namespace: str, name: str, dimensions: Iterable[str]) -> None:
    """
    Make sure that a metric of a cluster is written with these dimensions; those of other namespaces are not ours.

    Raises:
        AssemblyError: It is not.
    """
    given = frozenset(dimensions)
    if namespace == NAMESPACE and (name, given) not in _KNOWN:
        raise AssemblyError(f"{NAMESPACE} has no metric {name!r} by {', '.join(sorted(given)) or 'nothing'}")


def require_known_metrics(body: Mapping[str, Any]) -> None:
    """
    Do the same for every metric of a dashboard, those of its searches too.

    Raises:
        AssemblyError: A metric is not written.
    """
    for widget in body["widgets"]:
        for namespace, name, dimensions in list_metrics(widget):
            require_known_metric(namespace, name, dimensions)


def list_metrics(widget: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Return namespace, name and dimensions of every metric of a widget."""
    for row in widget["properties"].get("metrics", ()):
        if isinstance(row[0], str):
            names = [part for part in row if isinstance(part, str)]
            yield names[0], names[1], tuple(names[2::2])
            continue
        for found in _SEARCH.finditer(row[0].get("expression", "")):
            yield NAMESPACE, found["name"], tuple(found["dimensions"].split(","))
