"""
Updates of managed node groups: a version update replaces every node, a configuration update none.

EKS user guide, "Understand each phase of node updates".
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.autoscaling.driver import ScalingDriver
from cdk_rehearsal.embedded_aws.base.scaling_group import Activity, GroupInstance
from cdk_rehearsal.embedded_aws.eks.cluster import Cluster, Issue, NodeGroup

_POLL_SECONDS = 0.05
_ZONE_SURGE = 2
"""Nodes for each Availability Zone that a surge launches at least."""
_DRAIN_MINUTES = 15.0
_CAUSE = "instance was taken out of service in response to a user request"


class _UpdateError(Exception):
    """A version update that EKS gives up."""

    def __init__(self, code: str, message: str, resources: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.issue = Issue(code, message, resources)


class NodeReplacement:
    """
    Replacement of all nodes of a group, in a thread of the caller.

    Strategy DEFAULT launches more nodes first: two for each Availability Zone, or as many as may be unavailable if that
    is more. Strategy MINIMAL ends nodes first. Both drain as many nodes at a time as may be unavailable.

    Args:
        scaling: Driver of the Auto Scaling group.
        cluster: The cluster.
        group: The node group, whose Auto Scaling group already has the new version of its launch template.
        minute_seconds: Length of a minute of waiting, in seconds.
        patience: Seconds after which nodes that do not join fail the update.
    """

    def __init__(
        self, scaling: ScalingDriver, cluster: Cluster, group: NodeGroup, *, minute_seconds: float, patience: float
    ) -> None:
        self._driver, self._cluster, self._group = scaling, cluster, group
        self._drain_seconds, self._patience = _DRAIN_MINUTES * minute_seconds, patience
        self._failed = sum(each.is_failed_launch for each in group.scaling.activities)

    def run(self) -> tuple[Issue, ...]:
        """Replace the nodes; return why the update failed, nothing where it did not."""
        scaling = self._group.scaling
        with self._driver.lock:
            old, sizes = list(scaling.active), (scaling.max_size, scaling.desired)
        config = self._group.request.get("updateConfig", {})
        batch = _count_unavailable(config, len(old))
        try:
            if config.get("updateStrategy", "DEFAULT") == "DEFAULT":
                self._grow(max(_ZONE_SURGE * len(scaling.zones), batch))
                self._await_nodes(old)
            while left := [each for each in old if scaling.find(each.instance_id) is not None]:
                for entry in left[:batch]:
                    self._end(entry, is_replaced=True)
                self._await_nodes(left[batch:])
            self._shrink(sizes[1])
        except _UpdateError as error:
            self._shrink(sizes[1])
            return (error.issue,)
        finally:
            with self._driver.lock:
                scaling.max_size, scaling.desired = sizes
            self._driver.reconcile_soon(scaling)
        return ()

    def _grow(self, count: int) -> None:
        scaling = self._group.scaling
        with self._driver.lock:
            scaling.max_size += count
            scaling.desired += count
            scaling.capacity_cause = f"a user request changed the desired capacity to {scaling.desired}"
        self._driver.reconcile_soon(scaling)

    def _shrink(self, desired: int) -> None:
        """Take away one node after the other, the newest first, until the group has its size again."""
        scaling = self._group.scaling
        while scaling.desired > desired:
            with self._driver.lock:
                scaling.desired -= 1
                spare = len(scaling.active) > scaling.desired
                entry = max(scaling.active, key=lambda each: each.launched) if spare else None
            if entry is not None:
                self._end(entry, is_replaced=False)

    def _end(self, entry: GroupInstance, *, is_replaced: bool) -> None:
        """Drain a node and terminate its instance; a spare one ends with the pods that it has."""
        name, running = entry.instance_id, self._cluster.running
        assert running is not None
        is_node = name in self._group.nodes
        if is_node and not running.drain_node(name, self._drain_seconds) and is_replaced:
            raise _UpdateError(
                "PodEvictionFailure",
                f"Reached max retries while trying to evict pods from nodes in node group {self._group.name}",
                (self._group.nodes[name].joined.name,),
            )
        with self._driver.lock:
            if entry.lifecycle_state != "Terminating":
                self._driver.begin_termination(self._group.scaling, entry, _CAUSE)
        if is_replaced:
            self._wait(lambda: self._group.scaling.find(name) is None)

    def _await_nodes(self, old: list[GroupInstance]) -> None:
        """Wait until the group has its size, and all nodes but the old ones are ready."""
        scaling, kept = self._group.scaling, {each.instance_id for each in old}

        def is_complete() -> bool:
            with self._driver.lock:
                failed = [each for each in scaling.activities if each.is_failed_launch]
                names = [each.instance_id for each in scaling.active if each.lifecycle_state == "InService"]
            if len(failed) > self._failed:
                raise _UpdateError("AsgInstanceLaunchFailures", _find_newest(failed), (scaling.name,))
            return len(names) >= scaling.desired and all(name in kept or self._is_ready(name) for name in names)

        self._wait(is_complete)

    def _is_ready(self, name: str) -> bool:
        node = self._group.nodes.get(name)
        return node is not None and not node.obstacle and not node.joined.find_fault()

    def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._patience
        while not is_done():
            if self._group.scaling.deleting or time.monotonic() >= deadline:
                raise _UpdateError(
                    "NodeCreationFailure",
                    f"Couldn't proceed with upgrade process as new nodes are not joining node group {self._group.name}",
                )
            time.sleep(_POLL_SECONDS)


def _find_newest(failed: list[Activity]) -> str:
    newest = max(failed, key=lambda each: each.start_time)
    return f"Could not launch On-Demand Instances. {newest.error_code} - {newest.status_message}"


def _count_unavailable(config: Mapping[str, Any], nodes: int) -> int:
    """Return how many nodes are replaced at a time: at least one (EKS API reference, NodegroupUpdateConfig)."""
    if "maxUnavailablePercentage" in config:
        return max(1, nodes * int(config["maxUnavailablePercentage"]) // 100)
    return int(config.get("maxUnavailable", 1))


def change_pairs(given: Mapping[str, Any], changes: Mapping[str, Any], name: str) -> Any:
    """Return the labels or taints of a group after a request's additions and removals."""
    changed = changes.get(name, {})
    added, removed = changed.get(f"addOrUpdate{name.title()}"), changed.get(f"remove{name.title()}")
    if name == "labels":
        left = {key: value for key, value in given.get(name, {}).items() if key not in (removed or ())}
        return {**left, **(added or {})}
    gone = {(each["key"], each["effect"]) for each in (*(removed or ()), *(added or ()))}
    return [each for each in given.get(name, []) if (each["key"], each["effect"]) not in gone] + list(added or ())
