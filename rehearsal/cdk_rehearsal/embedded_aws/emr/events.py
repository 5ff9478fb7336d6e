"""
Events of EMR: changes of the state of a cluster and of a step.

Source: EMR management guide, "Monitoring Amazon EMR events with CloudWatch", which has an event of each kind.
"""

import json
from typing import Any

from cdk_rehearsal.embedded_aws.emr.cluster import Cluster, Step, drop_unset

_FAILED = ("FAILED", "TERMINATED_WITH_ERRORS")


def describe_cluster_change(cluster: Cluster) -> tuple[str, dict[str, Any]]:
    """Return detail type and detail of the event of a cluster's state."""
    said = drop_unset({"code": cluster.reason.code, "message": cluster.reason.message})
    message = f"Amazon EMR Cluster {cluster.id} ({cluster.name}) is {cluster.state}. {cluster.reason.message}".rstrip()
    detail = _describe(cluster, cluster.state, cluster.name, message) | {"stateChangeReason": json.dumps(said)}
    return "EMR Cluster State Change", detail


def describe_step_change(cluster: Cluster, step: Step) -> tuple[str, dict[str, Any]]:
    """Return detail type and detail of the event of a step's state."""
    message = f"Step {step.id} ({step.name}) in Amazon EMR cluster {cluster.id} ({cluster.name}) is {step.state}."
    more = {"stepId": step.id, "actionOnFailure": step.action_on_failure}
    return "EMR Step Status Change", _describe(cluster, step.state, step.name, message) | more


def _describe(cluster: Cluster, state: str, name: str, message: str) -> dict[str, Any]:
    severity = "ERROR" if state in _FAILED else "INFO"
    return {"severity": severity, "clusterId": cluster.id, "name": name, "state": state, "message": message}
