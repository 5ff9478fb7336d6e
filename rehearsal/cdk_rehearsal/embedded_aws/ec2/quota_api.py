"""The API of Service Quotas for the quotas of EC2, and CloudWatch's metric of their use."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

import moto.servicequotas.urls
from moto.cloudwatch.models import CloudWatchBackend, MetricDatum, Statistics
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.core.utils import utcnow

from cdk_rehearsal.embedded_aws.base.capacity_pools import Capacity
from cdk_rehearsal.embedded_aws.base.stand_in_api import StandInApi
from cdk_rehearsal.embedded_aws.base.vcpu_quotas import VCPU_QUOTAS, VcpuQuota
from cdk_rehearsal.place import Place

_SERVICE = "ec2"
_USAGE = "AWS/Usage"
_METRIC = "ResourceCount"
_AGE = timedelta(minutes=1)
"""Age of the metric's last point: it has one a minute (CloudWatch User Guide, "AWS usage metrics")."""
_GET_STATISTICS = CloudWatchBackend.get_metric_statistics
_NO_SERVICE = "This service is not available in the current Region. Choose a different Region or a different service."
_NO_QUOTA = "The specified quota does not exist."


class _Refusal(ServiceException):
    """A refusal, which moto words by the service of its module."""

    __module__ = "moto.servicequotas.exceptions"


class QuotaApi(StandInApi):
    """Operations that read quotas; only EC2 has any."""

    service = "service-quotas"
    error = _Refusal
    capacity: ClassVar[Capacity]
    place: ClassVar[Place]

    def list_service_quotas(self) -> ActionResult:
        """Return the applied quotas alone; the others have their default (Service Quotas API, `ListServiceQuotas`)."""
        self._require_service()
        applied = [quota for quota in VCPU_QUOTAS if self.capacity.quotas.is_applied(quota)]
        return ActionResult({"Quotas": [self._describe(quota) for quota in applied]})

    def list_aws_default_service_quotas(self) -> ActionResult:
        self._require_service()
        return ActionResult({"Quotas": [self._describe(quota) for quota in VCPU_QUOTAS]})

    def get_service_quota(self) -> ActionResult:
        self._require_service()
        code = self._get_param("QuotaCode")
        found = next((each for each in VCPU_QUOTAS if each.code == code), None)
        if found is None:
            raise _Refusal("NoSuchResourceException", _NO_QUOTA)
        return ActionResult({"Quota": self._describe(found)})

    def _require_service(self) -> None:
        if self._get_param("ServiceCode") != _SERVICE:
            raise _Refusal("NoSuchResourceException", _NO_SERVICE)

    def _describe(self, quota: VcpuQuota) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "ServiceCode": _SERVICE,
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaArn": self.place.arn("servicequotas", f"{_SERVICE}/{quota.code}"),
            "QuotaCode": quota.code,
            "QuotaName": quota.name,
            "Value": self.capacity.quotas.find_value(quota),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }
        if quota.usage:
            shown["UsageMetric"] = {
                "MetricNamespace": _USAGE,
                "MetricName": _METRIC,
                "MetricDimensions": _list_dimensions(quota),
                "MetricStatisticRecommendation": "Maximum",
            }
        return shown


def _list_dimensions(quota: VcpuQuota) -> Mapping[str, str]:
    return {"Class": quota.usage, "Resource": "vCPU", "Service": "EC2", "Type": "Resource"}


def install_quota_api(capacity: Capacity, place: Place) -> None:
    """Replace moto's API of Service Quotas, and let CloudWatch have the metric of what is used."""
    QuotaApi.capacity, QuotaApi.place = capacity, place
    QuotaApi.install(moto.servicequotas.urls.url_paths)

    def get_metric_statistics(
        backend: CloudWatchBackend,
        namespace: str,
        name: str,
        start: datetime,
        end: datetime,
        *arguments: Any,
        **more: Any,
    ) -> list[Statistics]:
        if namespace != _USAGE:
            return _GET_STATISTICS(backend, namespace, name, start, end, *arguments, **more)
        statistics = Statistics(more.get("stats") or arguments[1], utcnow() - _AGE)
        dimensions = more.get("dimensions") or arguments[2]
        statistics.metric_data = [point for point in _measure(capacity) if point.filter(None, name, dimensions)]
        is_there = bool(statistics.metric_data) and start <= statistics.timestamp < end
        return [statistics] if is_there else []

    setattr(CloudWatchBackend, get_metric_statistics.__name__, get_metric_statistics)


def _measure(capacity: Capacity) -> Iterator[MetricDatum]:
    """Yield a point for each quota of which instances use something now."""
    for quota in VCPU_QUOTAS:
        if quota.usage and (vcpus := capacity.count_used(quota)):
            dimensions = [{"Name": name, "Value": value} for name, value in _list_dimensions(quota).items()]
            yield MetricDatum(_USAGE, _METRIC, float(vcpus), dimensions, None)
