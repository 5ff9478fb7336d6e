"""Options of the embedded AWS for a cluster, with the faults of a case."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions
from cdk_rehearsal.embedded_aws.base.message_faults import MessageFaults
from cdk_rehearsal.embedded_aws.base.training_limits import TrainingLimits
from cdk_rehearsal.errors import AssemblyError
from deeplearning_contract.metrics import METRICS, NAMESPACE
from deeplearning_contract.names import find_role
from deeplearning_rehearsal.cases.account import fill_account
from deeplearning_rehearsal.cases.case import Case
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments

_KNOWN_METRICS = {(metric.name, frozenset(names)) for metric in METRICS for names in metric.dimensions}
_QUICK_RETRIES = (1.0, 2.0)
"""Lambda's own pauses are a minute and two, for which no case waits."""


def make_cloud_options(**options: Any) -> CloudOptions:
    """Return options of the embedded AWS for a cluster: those given, the roles of nodes, and the known metrics."""
    return CloudOptions(label_instance=_label_instance, check_metric=require_known_metric, **options)


def _label_instance(tags: Mapping[str, str], group: str) -> str:
    role = find_role(tags)
    return role.value if role else group


def add_faults(options: CloudOptions, case: Case, kept: KeptEnvironments) -> CloudOptions:
    """Return options with the faults of a case."""
    cloud = case.cloud
    gap = options.pace.notification_gap if cloud.notification_gap is None else cloud.notification_gap
    return replace(
        options,
        faults=tuple(cloud.launch_faults),
        pools=tuple(cloud.pools),
        reservations=tuple(cloud.reservations),
        quotas=cloud.quotas,
        missing_types=cloud.missing_types,
        lose_notifications=cloud.lose_notifications,
        pace=replace(options.pace, notification_gap=gap),
        message_faults=MessageFaults(**dict.fromkeys(cloud.messages, True)) if cloud.messages else None,
        object_seconds=cloud.object_seconds,
        lose_answers=cloud.lose_answers,
        training_limits=TrainingLimits(quota=cloud.training_quota, capacity=cloud.training_capacity),
        retry_seconds=_QUICK_RETRIES if cloud.lose_answers else options.retry_seconds,
        prepare=lambda place: fill_account(place, case.objects, case.buckets, kept),
    )


def require_known_metric(namespace: str, name: str, dimensions: Iterable[str]) -> None:
    """Raise AssemblyError for a metric of a cluster that is not written with these dimensions."""
    given = frozenset(dimensions)
    if namespace == NAMESPACE and (name, given) not in _KNOWN_METRICS:
        raise AssemblyError(f"{NAMESPACE} has no metric {name!r} by {', '.join(sorted(given)) or 'nothing'}")
