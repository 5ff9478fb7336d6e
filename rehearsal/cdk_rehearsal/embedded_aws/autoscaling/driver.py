"""
Drives Auto Scaling groups: instances are launched and terminated behind the API's back, one activity each.

moto launches within the API call; AWS does not, and everything that forms a cluster lives off the difference.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.autoscaling import activity as scaling_activity
from cdk_rehearsal.embedded_aws.autoscaling.notifications import GroupNotifications
from cdk_rehearsal.embedded_aws.base.cloud_options import ScalingPace
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError, LaunchFault, find_fault
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.scaling_group import (
    Activity,
    GroupInstance,
    HealthCheck,
    LaunchConfiguration,
    ScalingGroup,
    now,
)
from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.ec2.launcher import InstanceLauncher
from cdk_rehearsal.machine import Machine, MachineHost

_LAUNCH_THREADS = 8
_LAUNCH_SECONDS, _POLL_SECONDS = 60.0, 0.05
_log = logging.getLogger(__name__)


class JobQueue:
    """Runs jobs when they are due, as many at a time as there are workers."""

    def __init__(self, workers: int) -> None:
        self._lock = threading.Lock()
        self._free = threading.Semaphore(workers)
        self._timers: list[threading.Timer] = []
        self._closing = False

    def after(self, seconds: float, job: Callable[[], None]) -> None:
        """Run a job once, a time from now; jobs given after `close` are dropped."""
        timer = threading.Timer(seconds, self._run, [job])
        timer.daemon = True
        with self._lock:
            if not self._closing:
                self._timers = [entry for entry in self._timers if entry.is_alive()] + [timer]
                timer.start()

    def close(self) -> None:
        """Drop what is not due and wait for what runs."""
        with self._lock:
            self._closing = True
        for timer in self._timers:
            timer.cancel()
        for timer in self._timers:
            timer.join()

    def _run(self, job: Callable[[], None]) -> None:
        with self._free:
            if self._closing:
                return
            try:
                job()
            except Exception:  # noqa: BLE001 - a defect of one job must not end the others
                _log.exception("a job of the embedded AWS failed")


def describe_activities(groups: Iterable[ScalingGroup]) -> list[dict[str, Any]]:
    """Return the activities of groups in the API's form, newest first; the caller holds the driver's lock."""
    rows = [activity for group in groups for activity in group.activities]
    return [entry.to_api() for entry in sorted(rows, key=lambda entry: entry.start_time, reverse=True)]


class ScalingDriver:
    """Keeps every group at its desired capacity."""

    def __init__(
        self,
        *,
        launcher: InstanceLauncher,
        machines: MachineHost,
        notifications: GroupNotifications,
        observations: Observations,
        pace: ScalingPace,
        faults: Sequence[LaunchFault],
    ) -> None:
        self._launcher = launcher
        self._machines = machines
        self._notifications = notifications
        self._observations = observations
        self.faults = tuple(faults)
        self._jobs = JobQueue(_LAUNCH_THREADS)
        self.pace = pace
        self.lock = threading.RLock()
        self.groups: dict[str, ScalingGroup] = {}
        self.launch_configurations: dict[str, LaunchConfiguration] = {}
        self.deleted: list[ScalingGroup] = []
        self.enter_balancers: Callable[[ScalingGroup, str], None] = lambda _group, _id: None
        self.leave_balancers: Callable[[ScalingGroup, str], None] = lambda _group, _id: None

    def add_group(self, group: ScalingGroup) -> None:
        """Take over a new group and begin to launch its instances."""
        with self.lock:
            change = f"changing the desired capacity from 0 to {group.desired}"
            group.capacity_cause = f"a user request created an AutoScalingGroup {change}"
            self.groups[group.name] = group
        self.reconcile_soon(group)

    def set_notifications_later(self, group: ScalingGroup, topics: dict[str, tuple[str, ...]]) -> None:
        """Set a group's notifications after the gap that follows its creation."""
        if topics:
            self._jobs.after(self.pace.notification_gap, partial(self._notifications.set_topics, group, topics))

    def delete_group(self, name: str) -> None:
        """Delete a group and power its instances off, when launches that have begun are through."""
        with self.lock:
            group = self.groups.get(name)
            if group is None:
                return
            group.deleting = True
            group.desired = group.min_size = group.max_size = 0
        give_up = time.monotonic() + _LAUNCH_SECONDS
        while group.pending_launches and time.monotonic() < give_up:
            time.sleep(_POLL_SECONDS)
        with self.lock:
            instances = [entry.instance_id for entry in group.instances]
            group.instances.clear()
        for instance_id in instances:
            self.leave_balancers(group, instance_id)
            self._find_host(group).power_off(instance_id)
            self._launcher.terminate(instance_id)
            self._observations.report("scaling", instance_id, "terminated with its group", group=name)
        with self.lock:
            self.deleted.append(self.groups.pop(name))

    def reconcile_soon(self, group: ScalingGroup, *, after: float = 0.0) -> None:
        """Act on a change of a group after the reaction time, and `after` seconds more."""
        self._jobs.after(after + self.pace.reaction, partial(self._reconcile, group))

    def begin_termination(self, group: ScalingGroup, entry: GroupInstance, cause: str) -> Activity:
        """Begin to terminate an instance of a group; the caller holds the lock."""
        if entry.launch is not None and entry.launch.end_time is None:
            scaling_activity.cancel_launch(entry.launch, "")
        entry.lifecycle_state = "Terminating"
        activity = scaling_activity.begin_termination(group, entry.instance_id, cause)
        self._jobs.after(self.pace.termination, partial(self._terminate, group, entry, activity))
        self.reconcile_soon(group)
        return activity

    def find_instance(self, instance_id: str) -> tuple[ScalingGroup, GroupInstance] | None:
        """Return an instance with its group; None where no group has it, or terminates it already."""
        for group in self.groups.values():
            entry = group.find(instance_id)
            if entry is not None and entry.lifecycle_state != "Terminating":
                return group, entry
        return None

    def fail_instance(self, instance_id: str, check: HealthCheck) -> bool:
        """Fail a check of EC2 for an instance; return whether a group had it and was not terminating it already."""
        with self.lock:
            if found := self.find_instance(instance_id):
                group, entry = found
                entry.failed_check = check
                self.reconcile_soon(group, after=scaling_activity.grace_left(group, entry))
            return found is not None

    def judge_target(self, instance_id: str, target_group: str, *, is_healthy: bool) -> None:
        """Take what a load balancer says of a target, where the group of the instance asks it."""
        with self.lock:
            found = self.find_instance(instance_id)
            if found is None or found[0].health_check_type != "ELB" or target_group not in found[0].target_groups:
                return
            group, entry = found
            if is_healthy and entry.failed_check == "balancer":
                entry.failed_check = None
            elif not is_healthy and entry.failed_check is None:
                entry.failed_check = "balancer"
                self.reconcile_soon(group, after=scaling_activity.grace_left(group, entry))

    def age_groups(self, seconds: float) -> None:
        """Date the creation of every group back, by seconds."""
        with self.lock:
            for group in self.groups.values():
                group.created -= timedelta(seconds=seconds)

    def settle_group(self, group: ScalingGroup) -> Outcome | None:
        """Return the outcome of a new group's creation, as CloudFormation waits for it; None while it lasts."""
        with self.lock:
            return scaling_activity.settle(group)

    def activities(self) -> tuple[dict[str, Any], ...]:
        """Return the activities of all groups in the API's form, newest first; those of deleted groups too."""
        with self.lock:
            return tuple(describe_activities((*self.groups.values(), *self.deleted)))

    def close(self) -> None:
        """End all activity; machines are left to their host."""
        self._jobs.close()

    def _reconcile(self, group: ScalingGroup) -> None:
        with self.lock:
            if group.deleting:
                return
            for entry in scaling_activity.find_unhealthy(group):
                self._replace(group, entry)
            surplus = len(group.active) + group.pending_launches - group.desired
            if surplus > 0 and "Terminate" not in group.suspended:
                for entry in group.choose_victims(surplus):
                    self.begin_termination(group, entry, scaling_activity.scale_in_cause(group))
            if surplus >= 0:
                group.replacements = 0
            if surplus >= 0 or "Launch" in group.suspended:
                return
            if (wait := group.retry_at - time.monotonic()) > 0:
                self._jobs.after(wait, partial(self._reconcile, group))
                return
            for _ in range(-surplus):
                self._begin_launch(group)

    def _replace(self, group: ScalingGroup, entry: GroupInstance) -> None:
        group.replacements += 1
        if entry.launch is None or entry.launch.end_time is not None:
            self.begin_termination(group, entry, scaling_activity.name_cause(entry))
            return
        scaling_activity.cancel_launch(entry.launch, scaling_activity.explain_early_end(scaling_activity.SHUT_DOWN))
        entry.lifecycle_state = "Terminating"
        self._jobs.after(self.pace.termination, partial(self._terminate, group, entry, entry.launch))

    def _begin_launch(self, group: ScalingGroup) -> None:
        activity = scaling_activity.begin_launch(group)
        group.pending_launches += 1
        group.attempts += 1
        fault = find_fault(self.faults, tags=group.own_tags, group=group.name, ordinal=group.attempts)
        self._jobs.after(self.pace.failure if fault else 0, partial(self._launch, group, activity, fault))

    def _launch(self, group: ScalingGroup, activity: Activity, fault: LaunchFault | None) -> None:
        begin = time.monotonic()
        try:
            order = self._launcher.order_for(group)
            machine = self._launcher.launch(order, fault)
            end = self._launcher.find_end(order, machine, fault)
        except LaunchError as error:
            with self.lock:
                group.pending_launches -= 1
            self._fail(group, activity, error)
            return
        entry = GroupInstance(
            machine.instance_id, machine.instance_type, machine.zone, now(), protected=group.protect_new_instances
        )
        entry.launch = activity
        with self.lock:
            group.pending_launches -= 1
            scaling_activity.name_instance(activity, machine.instance_id)
            group.instances.append(entry)
        if end is not None:
            self._jobs.after(self.pace.failure, partial(self._end_early, group, entry, activity, end))
            return
        text = f"launched for {self._launcher.label(group.own_tags, group.name)}"
        self._observations.report("scaling", entry.instance_id, text, machine=machine)
        try:
            self._boot(group, machine, entry)
        except Exception as error:  # noqa: BLE001 - the lab's own failure must not pass for a slow launch
            with self.lock:
                group.instances.remove(entry)
            self._launcher.terminate(machine.instance_id)
            self._fail(group, activity, LaunchError("InternalError", f"the machine did not start: {error}."))
            return
        left = self.pace.launch - (time.monotonic() - begin)
        self._jobs.after(max(0.0, left), partial(self._enter_service, group, entry, activity))

    def _boot(self, group: ScalingGroup, machine: Machine, entry: GroupInstance) -> None:
        self._find_host(group).boot(machine)
        with self.lock:
            is_wanted = not group.deleting and entry in group.instances
        if not is_wanted:  # its group was deleted, or scaled in, meanwhile
            self._find_host(group).power_off(machine.instance_id)
            self._launcher.terminate(machine.instance_id)

    def _find_host(self, group: ScalingGroup) -> MachineHost:
        return group.host or self._machines

    def _enter_service(self, group: ScalingGroup, entry: GroupInstance, activity: Activity) -> None:
        with self.lock:
            if group.deleting or entry.lifecycle_state != "Pending":
                return
            entry.lifecycle_state, entry.in_service_at = "InService", time.monotonic()
            group.failures = 0
            scaling_activity.end(activity, "Successful")
        self.enter_balancers(group, entry.instance_id)
        self._observations.report("scaling", entry.instance_id, "in service", group=group.name)
        self._notifications.publish(group, "autoscaling:EC2_INSTANCE_LAUNCH", activity)
        self.reconcile_soon(group)
        if entry.failed_check is not None:
            self.reconcile_soon(group, after=scaling_activity.grace_left(group, entry))

    def _end_early(self, group: ScalingGroup, entry: GroupInstance, activity: Activity, error: LaunchError) -> None:
        with self.lock:
            if group.deleting or entry.lifecycle_state != "Pending":
                return
            scaling_activity.cancel_launch(activity, scaling_activity.explain_early_end(f"{error}"))
            entry.failed_check = "stopped"
            self.begin_termination(group, entry, scaling_activity.name_cause(entry))
        self._pause(group, activity, error)

    def _fail(self, group: ScalingGroup, activity: Activity, error: LaunchError) -> None:
        with self.lock:
            scaling_activity.end_badly(activity, error)
        self._pause(group, activity, error)

    def _pause(self, group: ScalingGroup, activity: Activity, error: LaunchError) -> None:
        with self.lock:
            pause = self.pace.retries[min(group.failures, len(self.pace.retries) - 1)]
            group.failures += 1
            group.retry_at = time.monotonic() + pause
        self._observations.report("scaling", group.name, f"launch failed: {error.code}", activity=activity)
        self._notifications.publish(group, "autoscaling:EC2_INSTANCE_LAUNCH_ERROR", activity)
        self._jobs.after(pause, partial(self._reconcile, group))

    def _terminate(self, group: ScalingGroup, entry: GroupInstance, activity: Activity) -> None:
        self.leave_balancers(group, entry.instance_id)
        self._find_host(group).power_off(entry.instance_id)
        self._launcher.terminate(entry.instance_id)
        with self.lock:
            if entry in group.instances:
                group.instances.remove(entry)
            if activity.end_time is None:
                scaling_activity.end(activity, "Successful")
        self._observations.report("scaling", entry.instance_id, "terminated", group=group.name)
        was_cancelled = activity.status_code == "Cancelled"  # then it is the launch that ends here
        event = "autoscaling:EC2_INSTANCE_LAUNCH_ERROR" if was_cancelled else "autoscaling:EC2_INSTANCE_TERMINATE"
        self._notifications.publish(group, event, activity)
