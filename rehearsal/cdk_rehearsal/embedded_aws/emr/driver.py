"""
Drives EMR clusters: launches their instances, and takes clusters, instances and steps through their states.

Amazon EMR Management Guide, "Understanding the cluster lifecycle": STARTING, BOOTSTRAPPING, RUNNING, WAITING, then
TERMINATING and TERMINATED, or TERMINATED_WITH_ERRORS.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.autoscaling.driver import JobQueue
from cdk_rehearsal.embedded_aws.base.cloud_options import ScalingPace
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError, LaunchFault, find_fault
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.scaling_group import now
from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.ec2.images import ImageCatalogue
from cdk_rehearsal.embedded_aws.ec2.launcher import InstanceLauncher
from cdk_rehearsal.embedded_aws.emr.cluster import (
    ACTIVE_STEPS,
    ENDED,
    READY,
    Cluster,
    ClusterInstance,
    ClusterState,
    DiskKey,
    InstanceGroup,
    StateReason,
    Step,
    StepState,
    word_bootstrap_failure,
)
from cdk_rehearsal.embedded_aws.emr.events import ClusterEvents
from cdk_rehearsal.embedded_aws.emr.node_channel import Message, NodeChannels, make_path
from cdk_rehearsal.embedded_aws.emr.provisioning import Provisioner, order_bootstrap
from cdk_rehearsal.machine import Machine, MachineHost, private_dns_name
from cdk_rehearsal.place import Place

_THREADS, _END_SECONDS, _POLL_SECONDS = 16, 60.0, 0.05
_BY_PLAN = ("USER_REQUEST", "ALL_STEPS_COMPLETED")
"""Codes of reasons that are no errors."""
_READY, _IDLE = "Cluster ready to run steps.", "Cluster ready after last step completed."
_USER_DATA = """#!/bin/sh
echo '{url}' > /etc/emr-instance-controller
systemctl enable --now emr-instance-controller.service
"""


class EmrDriver:
    """
    Runs clusters.

    Without `boots`, no instance boots: clusters wait as soon as their instances are launched, and run no step.
    `minute_seconds` is the length of a minute of an idle cluster, the interval of its measures, in seconds.
    """

    def __init__(
        self,
        *,
        place: Place,
        launcher: InstanceLauncher,
        images: ImageCatalogue,
        machines: MachineHost,
        channels: NodeChannels,
        provisioner: Provisioner,
        observations: Observations,
        pace: ScalingPace,
        faults: Sequence[LaunchFault],
        boots: bool,
        minute_seconds: float = 60.0,
    ) -> None:
        self._place = place
        self._launcher = launcher
        self._images = images
        self._machines = machines
        self._channels = channels
        self.provisioner = provisioner
        self._observations = observations
        self._pace = pace
        self._faults = faults
        self._boots = boots
        self._second = minute_seconds / 60
        self._jobs = JobQueue(_THREADS)
        self.events = ClusterEvents(place, self._jobs, observations)
        self.lock = threading.RLock()
        self.clusters: dict[str, Cluster] = {}
        self.security_configurations: dict[str, str] = {}
        channels.receiver = self

    def run(self, request: Mapping[str, Any], groups: list[InstanceGroup], steps: list[Step]) -> Cluster:
        """Begin to launch a cluster whose request is in order."""
        key = DiskKey.read(self.security_configurations.get(request.get("SecurityConfiguration", ""), "{}"))
        cluster = Cluster(request, self._place.arn("elasticmapreduce", "cluster/"), key, groups=groups)
        cluster.steps = [cluster.place_log(step) for step in steps]
        with self.lock:
            self.clusters[cluster.id] = cluster
        self.events.report(cluster, "STARTING")
        self._jobs.after(self._pace.reaction, partial(self._provision, cluster))
        return cluster

    def add_steps(self, cluster: Cluster, steps: list[Step]) -> None:
        """Add steps to a cluster that has not ended; the caller holds the lock."""
        cluster.steps += [cluster.place_log(step) for step in steps]
        self._jobs.after(0, partial(self._advance, cluster))

    def cancel_step(self, cluster: Cluster, step: Step, *, by_force: bool) -> None:
        """Cancel a step that is pending or runs; the caller holds the lock."""
        if step.state == "PENDING":
            self._end_step(cluster, step, "CANCELLED")
        elif cluster.master is not None:
            # SIGTERM to the step's process, which may take its time, or SIGKILL to it and all that it started.
            step.state = "CANCEL_PENDING"
            self._channels.send(cluster.master.ec2_id, {"do": "cancel", "id": step.id, "by_force": by_force})

    def terminate(self, cluster: Cluster, code: str, message: str) -> None:
        """Begin to terminate a cluster, unless it ends already."""
        with self.lock:
            if cluster.is_ending:
                return
            self._change(cluster, "TERMINATING", StateReason(code, message))
            for step in cluster.steps:
                if step.state in ACTIVE_STEPS:
                    self._end_step(cluster, step, "CANCELLED")
        self._jobs.after(self._pace.termination, partial(self._finish, cluster))

    def delete(self, cluster: Cluster) -> None:
        """Wait for the end of a cluster that terminates; raise RuntimeError when it does not end."""
        give_up = time.monotonic() + _END_SECONDS
        while cluster.state not in ENDED:
            if time.monotonic() > give_up:
                raise RuntimeError(f"cluster {cluster.id} must end, it is {cluster.state}")
            time.sleep(_POLL_SECONDS)

    def settle(self, cluster: Cluster) -> Outcome | None:
        """Return the outcome of a new cluster's creation, as CloudFormation waits for it; None while it lasts."""
        with self.lock:
            if cluster.state in READY or (cluster.state in ENDED and cluster.reason.code == "ALL_STEPS_COMPLETED"):
                return Outcome()
            if cluster.state in ENDED:
                return Outcome(f"{cluster.reason.code}: {cluster.reason.message}")
            return None

    def find_tags(self, cluster_id: str) -> Mapping[str, str]:
        """Return the tags of a cluster; none where there is no such cluster."""
        return self.clusters[cluster_id].tags if cluster_id in self.clusters else {}

    def fail_instance(self, instance_id: str) -> bool:
        """
        Take it that an instance is gone; return whether a cluster had it.

        EMR FAQs: a core node that fails is replaced; a cluster whose only primary fails ends. Whether unhealthy nodes
        are replaced (`UnhealthyNodeReplacement`) is about nodes that still run.
        """
        with self.lock:
            cluster, instance = self._find(instance_id)
            if cluster is None or instance is None:
                return False
            if instance.role == "MASTER":
                self.terminate(cluster, "INSTANCE_FAILURE", "The master node was terminated. ")  # EMR's words end so
                return True
            self._end_core(cluster, instance, "Instance failed")
        return True

    def close(self) -> None:
        """End all activity; machines are left to their host."""
        self._jobs.close()

    def take_report(self, instance_id: str, report: Message) -> None:
        """Take what a node's controller reports."""
        if report["event"] == "log-lost":
            return self.provisioner.note_lost_log(instance_id, report)
        with self.lock:
            cluster, instance = self._find(instance_id)
            if cluster is None or instance is None or cluster.is_ending:
                return None
            if last_line := report.get("last_line", ""):  # In the log bucket, too.
                self._observations.report("scaling", instance_id, f"standard error ends with: {last_line}")
            if report["event"] == "ready":
                self._greet(cluster, instance)
            elif report["event"] == "disks-locked":
                self.fail_instance(instance_id)
            elif report["event"] == "bootstrapped":
                self._admit(cluster, instance)
            elif report["event"] == "measured":
                self._take_measure(cluster, instance, report)
            elif report["event"] == "bootstrap-failed":
                self.terminate(cluster, "BOOTSTRAP_FAILURE", word_bootstrap_failure(instance, report))
            elif (step := cluster.find_step(report["id"])) is not None:
                self._take_step(cluster, step, report)
        return None

    def list_running_nodes(self, instance_id: str) -> list[str]:
        """Return the private DNS names of a cluster's core nodes that run; a primary has no NodeManager."""
        with self.lock:
            cluster, _ = self._find(instance_id)
            alive = cluster.alive if cluster else []
            return [entry.private_dns for entry in alive if entry.role == "CORE" and entry.state == "RUNNING"]

    def _find(self, instance_id: str) -> tuple[Cluster, ClusterInstance] | tuple[None, None]:
        """Return an instance that has not ended, with its cluster."""
        found = ((each, each.find_instance(instance_id)) for each in self.clusters.values())
        return next(((cluster, instance) for cluster, instance in found if instance is not None), (None, None))

    def _provision(self, cluster: Cluster) -> None:
        machines: list[Machine] = []
        try:
            if obstacle := self.provisioner.find_obstacle(cluster):
                return self.terminate(cluster, "VALIDATION_ERROR", obstacle)
            if taken := self.provisioner.find_taken_store(cluster, self._images):
                return self.terminate(cluster, "INTERNAL_ERROR", taken)
            self.provisioner.make_interface(cluster, self._launcher.free_address(cluster.settings["Ec2SubnetId"]))
            for group in cluster.groups:
                machines += [self._launch(cluster, group) for _ in range(group.count)]
        except LaunchError as error:
            # Management Guide, "Error codes with ErrorDetail": a lack of capacity is among the internal errors.
            code = "INTERNAL_ERROR" if error.code == "InsufficientInstanceCapacity" else "VALIDATION_ERROR"
            return self.terminate(cluster, code, f"{error.message} (EC2: {error.code})")
        except Exception as error:  # noqa: BLE001 - a defect of the rehearsal must not pass for a slow launch
            return self.terminate(cluster, "INTERNAL_ERROR", f"the rehearsal failed: {type(error).__name__}: {error}")
        self._spread_hosts(cluster)
        for machine in machines:
            self._jobs.after(0, partial(self._boot, cluster, machine))
        return None

    def _replace(self, cluster: Cluster, group: InstanceGroup) -> None:
        with self.lock:
            if cluster.is_ending or cluster.count_alive(group) >= group.count:
                return
        try:
            self.provisioner.check_launch(cluster, group)
            machine = self._launch(cluster, group)
        except LaunchError as error:
            self._observations.report("scaling", cluster.id, f"launch failed: {error.code}")
            self._jobs.after(self._pace.retries[0], partial(self._replace, cluster, group))
            return
        self._spread_hosts(cluster)
        self._boot(cluster, machine)

    def _spread_hosts(self, cluster: Cluster) -> None:
        """Let each node know the names of the others, which a VPC's DNS resolves."""
        with self.lock:
            hosts = {entry.private_dns: entry.address for entry in cluster.alive}
            for entry in cluster.alive:
                self._channels.send(entry.ec2_id, {"do": "hosts", "hosts": hosts})

    def _launch(self, cluster: Cluster, group: InstanceGroup) -> Machine:
        image_id = str(cluster.request.get("CustomAmiId") or self._images.seed_emr_image())
        self._images.admit(image_id)
        path = make_path()
        user_data = _USER_DATA.format(url=self._place.endpoint + path)
        order = self.provisioner.order_instance(cluster, group, image_id, user_data)
        cluster.launches += 1
        fault = find_fault(self._faults, tags=cluster.tags, group=cluster.name, ordinal=cluster.launches)
        machine = self._launcher.launch(order, fault)
        dns = private_dns_name(machine)
        instance = ClusterInstance(
            group.id, group.role, machine.instance_id, machine.address, dns, machine.instance_type, machine.zone
        )
        self._channels.open(machine.instance_id, path)
        with self.lock:
            cluster.instances.append(instance)
        self._observations.report("scaling", machine.instance_id, f"launched for {order.name}", machine=machine)
        return machine

    def _boot(self, cluster: Cluster, machine: Machine) -> None:
        try:
            self._machines.boot(machine)
        except Exception as error:  # noqa: BLE001 - the lab's own failure must not pass for a slow launch
            return self.terminate(cluster, "INTERNAL_ERROR", f"the machine did not start: {error}")
        with self.lock:
            instance = cluster.find_instance(machine.instance_id)
            if instance is not None and cluster.state in ENDED:  # meanwhile
                self._end_instance(cluster, instance, StateReason("CLUSTER_TERMINATED", "Instance was terminated."))
            elif instance is None:
                self._machines.power_off(machine.instance_id)
            elif not self._boots:
                self._admit(cluster, instance)
        return None

    def _greet(self, cluster: Cluster, instance: ClusterInstance) -> None:
        """Order a node to bootstrap that boots for the first time; one that was restarted goes on."""
        if instance.state != "PROVISIONING":
            return
        instance.state = "BOOTSTRAPPING"
        if cluster.state == "STARTING":
            self._change(cluster, "BOOTSTRAPPING", StateReason())
        self._channels.send(instance.ec2_id, order_bootstrap(cluster, instance))

    def _admit(self, cluster: Cluster, instance: ClusterInstance) -> None:
        instance.state, instance.ready = "RUNNING", now()
        self._observations.report("scaling", instance.ec2_id, "in service", group=cluster.name)
        wanted = sum(group.count for group in cluster.groups)
        if cluster.ready is None and sum(entry.state == "RUNNING" for entry in cluster.alive) == wanted:
            cluster.ready = now()
            self._change(cluster, "RUNNING", StateReason("", "Running step"))
            cluster.touch()
            self._measure(cluster)
            self._advance(cluster)

    def _measure(self, cluster: Cluster) -> None:
        """Ask the nodes for the fill of their disks and their activity, each minute."""
        with self.lock:
            if cluster.is_ending:
                return
            for entry in [entry for entry in cluster.alive if entry.state == "RUNNING"]:
                self._channels.send(entry.ec2_id, {"do": "measure"})
        self._jobs.after(60 * self._second, partial(self._measure, cluster))

    def _take_measure(self, cluster: Cluster, instance: ClusterInstance, report: Message) -> None:
        if cluster.replaces_unhealthy(instance, report["disk_percent"]):
            self._end_core(cluster, instance, f"Instance is unhealthy: its disk is {report['disk_percent']} % full")
        if instance.role == "MASTER" and cluster.is_idle(report["busy_seconds"], self._second):
            self.terminate(cluster, "ALL_STEPS_COMPLETED", "Cluster was idle for the time of its policy")

    def _advance(self, cluster: Cluster) -> None:
        """Start the steps that may run; end or idle where there is none left."""
        with self.lock:
            if cluster.state not in READY or not self._boots:
                if cluster.state in READY:
                    self._change(cluster, "WAITING", StateReason("", _READY))
                return None
            room = int(cluster.request.get("StepConcurrencyLevel", 1))
            room -= sum(step.state in ("RUNNING", "CANCEL_PENDING") for step in cluster.steps)
            for step in [step for step in cluster.steps if step.state == "PENDING"][: max(room, 0)]:
                self._start_step(cluster, step)
            if any(step.state in ACTIVE_STEPS for step in cluster.steps):
                return None
            if not cluster.settings.get("KeepJobFlowAliveWhenNoSteps", False):
                return self.terminate(cluster, "ALL_STEPS_COMPLETED", "Steps completed")
            if cluster.state != "WAITING":
                self._change(cluster, "WAITING", StateReason("", _IDLE if cluster.steps else _READY))
        return None

    def _start_step(self, cluster: Cluster, step: Step) -> None:
        assert cluster.master is not None  # a cluster without its primary has ended
        if cluster.state != "RUNNING":
            self._change(cluster, "RUNNING", StateReason("", "Running step"))
        step.state, step.started = "RUNNING", now()
        cluster.touch()  # It was pending until now.
        order = {"do": "step", "id": step.id, "jar": step.jar, "arguments": step.arguments, "logs": step.log}
        order["log_key"] = cluster.request.get("LogEncryptionKmsKeyId", "")
        self._channels.send(cluster.master.ec2_id, order)
        self.events.report_step(cluster, step)

    def _take_step(self, cluster: Cluster, step: Step, report: Message) -> None:
        """Take the end of a step's process; a step that was to be cancelled has no action on failure."""
        if step.state == "CANCEL_PENDING":
            self._end_step(cluster, step, "CANCELLED")
        elif step.state == "RUNNING" and report["code"] == 0:
            self._end_step(cluster, step, "COMPLETED")
        elif step.state == "RUNNING":
            self._end_step(cluster, step, "FAILED")
            # EMR API Reference, StepConfig: termination protection of a cluster that stays alive outweighs the action.
            kept = ("TerminationProtected", "KeepJobFlowAliveWhenNoSteps")
            is_kept = all(cluster.settings.get(name) for name in kept)
            if step.action_on_failure.startswith("TERMINATE_") and not is_kept:
                return self.terminate(cluster, "STEP_FAILURE", "Shut down as step failed")
            if step.action_on_failure != "CONTINUE":
                for other in cluster.steps:
                    if other.state == "PENDING":
                        self._end_step(cluster, other, "CANCELLED")
        return self._advance(cluster)

    def _end_step(self, cluster: Cluster, step: Step, state: StepState) -> None:
        step.state, step.ended = state, now()
        self.events.report_step(cluster, step)

    def _finish(self, cluster: Cluster) -> None:
        with self.lock:
            for instance in cluster.alive:
                self._end_instance(cluster, instance, StateReason("CLUSTER_TERMINATED", "Instance was terminated."))
            self.provisioner.remove_interface(cluster)
            cluster.ended = now()
            state: ClusterState = "TERMINATED" if cluster.reason.code in _BY_PLAN else "TERMINATED_WITH_ERRORS"
            self._change(cluster, state, cluster.reason)

    def _end_core(self, cluster: Cluster, instance: ClusterInstance, message: str) -> None:
        """End a core node, which is replaced unless its cluster ends."""
        self._end_instance(cluster, instance, StateReason("INSTANCE_FAILURE", message))
        group = next(group for group in cluster.groups if group.id == instance.group_id)
        self._jobs.after(self._pace.reaction, partial(self._replace, cluster, group))

    def _end_instance(self, cluster: Cluster, instance: ClusterInstance, reason: StateReason) -> None:
        # A role that may not terminate it leaves an instance that costs money; the refusal is reported.
        self.provisioner.find_denial(cluster, [("ec2.TerminateInstances", {"InstanceId": instance.ec2_id})])
        instance.state, instance.reason, instance.ended = "TERMINATED", reason, now()
        self._channels.close(instance.ec2_id)
        self._machines.power_off(instance.ec2_id)
        self._launcher.terminate(instance.ec2_id)
        self._observations.report("scaling", instance.ec2_id, "terminated")

    def _change(self, cluster: Cluster, state: ClusterState, reason: StateReason) -> None:
        cluster.state, cluster.reason = state, reason
        self.events.report_cluster(cluster)
