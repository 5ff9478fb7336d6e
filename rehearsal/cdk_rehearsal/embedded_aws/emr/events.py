"""
Events of EMR: changes of the state of a cluster and of a step, in the timeline and on the default event bus.

Source: EMR management guide, "Monitoring Amazon EMR events with CloudWatch", which has an event of each kind.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.autoscaling.driver import JobQueue
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.emr.cluster import Cluster, Step, drop_unset
from cdk_rehearsal.embedded_aws.messaging.event_bus import build_event
from cdk_rehearsal.place import Place

_FAILED = ("FAILED", "TERMINATED_WITH_ERRORS")


class ClusterEvents:
    """
    Reports changes as they happen.

    Attributes:
        send: Sends an event to the default event bus, once there is one.
    """

    def __init__(self, place: Place, jobs: JobQueue, observations: Observations) -> None:
        self._place = place
        self._jobs = jobs
        self._observations = observations
        self.send: Callable[[dict[str, Any]], object] = lambda _: None

    def report(self, cluster: Cluster, text: str) -> None:
        """Show a line about a cluster in the timeline."""
        self._observations.report("scaling", cluster.id, f"cluster {cluster.name} {text}")

    def report_cluster(self, cluster: Cluster) -> None:
        """Report the state of a cluster."""
        said = cluster.reason.message
        self.report(cluster, f"{cluster.state}: {said}" if said else cluster.state)
        self._publish(*describe_cluster_change(cluster))

    def report_step(self, cluster: Cluster, step: Step) -> None:
        """Report the state of a step."""
        self.report(cluster, f"step {step.name} {step.state}")
        self._publish(*describe_step_change(cluster, step))

    def _publish(self, kind: str, detail: Mapping[str, Any]) -> None:
        event = build_event(self._place, "aws.emr", kind, detail, [])

        def send() -> None:
            self.send(event)

        self._jobs.after(0, send)  # Not under the lock of the driver: a target may ask it something.


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
