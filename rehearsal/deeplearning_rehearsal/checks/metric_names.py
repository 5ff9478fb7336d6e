"""Refuses alarms and dashboards whose metrics nodes and Lambda never write: AWS would show nothing for ever."""

from collections.abc import Iterable

from cdk_rehearsal.errors import AssemblyError
from deeplearning_contract.metrics import METRICS, NAMESPACE

_KNOWN = {(metric.name, frozenset(names)) for metric in METRICS for names in metric.dimensions}


def require_known_metric(namespace: str, name: str, dimensions: Iterable[str]) -> None:
    """Raise AssemblyError for a metric of a cluster that is not written with these dimensions."""
    given = frozenset(dimensions)
    if namespace == NAMESPACE and (name, given) not in _KNOWN:
        raise AssemblyError(f"{NAMESPACE} has no metric {name!r} by {', '.join(sorted(given)) or 'nothing'}")
