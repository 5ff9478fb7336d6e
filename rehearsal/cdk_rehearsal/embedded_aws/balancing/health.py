"""Checks the targets of load balancers, answers for their health, and has groups replace what is not healthy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from moto.elbv2.models import ELBv2Backend, FakeHealthStatus, FakeLoadBalancer, FakeTargetGroup, elbv2_backends

from cdk_rehearsal.embedded_aws.autoscaling.driver import JobQueue, ScalingDriver
from cdk_rehearsal.embedded_aws.balancing.probe import FAILED, TIMEOUT, Failure, HealthCheck
from cdk_rehearsal.embedded_aws.balancing.target_state import TargetState
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.scaling_group import ScalingGroup
from cdk_rehearsal.embedded_aws.ec2.reachability import lets_connect
from cdk_rehearsal.place import Place

_THREADS = 8
Probe = Callable[[str, int, HealthCheck], Failure | None]
_NOT_IN_USE = "Target.NotInUse"


@dataclass(frozen=True)
class _Target:
    address: str
    zone: str
    groups: tuple[str, ...]
    is_stopped: bool


class TargetHealth:
    """Health of all registered targets; `second` is the length of a second of health checks' intervals."""

    def __init__(
        self, place: Place, scaling: ScalingDriver, observations: Observations, probe: Probe, second: float
    ) -> None:
        self._place = place
        self._scaling = scaling
        self._observations = observations
        self._probe = probe
        self._second = second
        self._jobs = JobQueue(_THREADS)
        self._states: dict[tuple[str, str], TargetState] = {}
        scaling.enter_balancers, scaling.leave_balancers = self._enter, self._leave

    def install(self) -> None:
        """Check what is registered from now on, and answer for it in place of moto."""
        register, describe = ELBv2Backend.register_targets, ELBv2Backend.describe_target_health
        health = self

        def register_targets(backend: ELBv2Backend, target_group_arn: str, instances: list[Any]) -> None:
            register(backend, target_group_arn, instances)
            health.watch(target_group_arn, [entry["Id"] for entry in instances])

        def describe_target_health(backend: ELBv2Backend, target_group_arn: str, targets: Any) -> list[Any]:
            rows = describe(backend, target_group_arn, targets)
            return [health.complete(backend.target_groups[target_group_arn], row) for row in rows]

        _patch(register_targets=register_targets, describe_target_health=describe_target_health)

    def close(self) -> None:
        """End all checks, and let moto answer again."""
        self._jobs.close()
        _patch(**_ORIGINAL)

    def watch(self, arn: str, ids: Sequence[str]) -> None:
        """Begin to check targets of a group that are not checked yet."""
        group = self._find_group(arn)
        for name in ids:
            if group is None or (arn, name) in self._states:
                continue
            self._states[arn, name] = TargetState(
                int(group.healthy_threshold_count), int(group.unhealthy_threshold_count)
            )
            self._jobs.after(0, partial(self._check, arn, name))

    def complete(self, group: FakeTargetGroup, row: FakeHealthStatus) -> FakeHealthStatus:
        """Return moto's answer for a target with what its checks say, where it is registered."""
        state = self._states.get((group.arn, row.instance_id))
        if state is None or row.instance_id not in group.targets:
            return row
        if (unused := self._find_unused(group, self._describe(row.instance_id))) is not None:
            row.status, row.reason, row.description = "unused", unused.reason, unused.description
            return row
        row.status, row.reason, row.description = state.state, state.failure.reason, state.failure.description
        if state.state == "healthy":
            row.reason = row.description = None
        return row

    def _check(self, arn: str, name: str) -> None:
        group, target = self._find_group(arn), self._describe(name)
        if group is None or name not in group.targets:
            self._states.pop((arn, name), None)
            return
        if self._find_unused(group, target) is None:
            state = self._states[arn, name]
            if state.take(self._check_once(group, target, group.targets[name])):
                reason = "" if state.state == "healthy" else f": {state.failure.reason}: {state.failure.description}"
                self._observations.report("scaling", name, f"target {state.state}{reason}", group=group.name)
            self._scaling.judge_target(name, arn, is_healthy=state.state != "unhealthy")
        interval = float(group.health_check_interval_seconds) * self._second
        self._jobs.after(interval, partial(self._check, arn, name))

    def _check_once(self, group: FakeTargetGroup, target: _Target, entry: Mapping[str, Any]) -> Failure | None:
        port = int(entry["Port"] if group.health_check_port == "traffic-port" else str(group.health_check_port))
        if not all(self._reaches(balancer, target, port) for balancer in self._find_balancers(group)):
            return TIMEOUT if group.protocol in ("HTTP", "HTTPS") else FAILED
        matcher = str(getattr(group, "matcher", {}).get("HttpCode", "200"))
        check = HealthCheck(
            str(group.health_check_protocol),
            str(group.health_check_path or "/"),
            matcher,
            float(group.health_check_timeout_seconds),
        )
        return self._probe(target.address, port, check)

    def _find_unused(self, group: FakeTargetGroup, target: _Target) -> Failure | None:
        balancers = self._find_balancers(group)
        if not balancers:
            words = "Target group is not configured to receive traffic from the load balancer"
            return Failure(_NOT_IN_USE, words)
        if target.is_stopped:
            return Failure("Target.InvalidState", "Target is in the stopped state")
        zones = {zone.zone_name for balancer in balancers for zone in balancer.availability_zones}
        if target.zone not in zones:
            words = "Target is in an Availability Zone that is not enabled for the load balancer"
            return Failure(_NOT_IN_USE, words)
        return None

    def _reaches(self, balancer: FakeLoadBalancer, target: _Target, port: int) -> bool:
        blocks = [str(subnet.cidr_block) for subnet in balancer.subnets]
        sources = balancer.security_groups or []
        return lets_connect(
            self._place.client("ec2"), (sources, blocks), (target.groups, [f"{target.address}/32"]), port
        )

    def _describe(self, name: str) -> _Target:
        """Return what EC2 knows of an instance, or of an address."""
        ec2 = self._place.client("ec2")
        if name.startswith("i-"):
            instance = ec2.describe_instances(InstanceIds=[name])["Reservations"][0]["Instances"][0]
            # moto leaves the groups of an instance empty, and gives those of its interfaces.
            cards = instance.get("NetworkInterfaces", [])
            groups = tuple(group["GroupId"] for card in cards for group in card["Groups"])
            is_stopped = instance["State"]["Name"] == "stopped"
            address = instance.get("PrivateIpAddress", "")
            return _Target(address, instance["Placement"]["AvailabilityZone"], groups, is_stopped)
        here = [{"Name": "addresses.private-ip-address", "Values": [name]}]
        for interface in ec2.describe_network_interfaces(Filters=here)["NetworkInterfaces"]:
            groups = tuple(group["GroupId"] for group in interface["Groups"])
            return _Target(name, interface["AvailabilityZone"], groups, is_stopped=False)
        return _Target(name, "", (), is_stopped=False)

    def _find_group(self, arn: str) -> FakeTargetGroup | None:
        return elbv2_backends[self._place.account][self._place.region].target_groups.get(arn)

    def _find_balancers(self, group: FakeTargetGroup) -> list[FakeLoadBalancer]:
        """Return the load balancers whose listeners or rules forward to a target group."""
        backend = elbv2_backends[self._place.account][self._place.region]
        return [
            balancer
            for balancer in backend.load_balancers.values()
            if any(
                group.arn in backend._get_target_group_arns_from(action_data=action.data)  # noqa: SLF001
                for listener in balancer.listeners.values()
                for rule in listener.rules.values()
                for action in rule.actions
            )
        ]

    def _enter(self, group: ScalingGroup, instance_id: str) -> None:
        if "AddToLoadBalancer" in group.suspended:
            return
        for arn in group.target_groups:
            self._place.client("elbv2").register_targets(TargetGroupArn=arn, Targets=[{"Id": instance_id}])

    def _leave(self, group: ScalingGroup, instance_id: str) -> None:
        for arn in group.target_groups:
            found = self._find_group(arn)
            if found is not None and instance_id in found.targets:
                self._place.client("elbv2").deregister_targets(TargetGroupArn=arn, Targets=[{"Id": instance_id}])


_ORIGINAL = {
    "register_targets": ELBv2Backend.register_targets,
    "describe_target_health": ELBv2Backend.describe_target_health,
}


def _patch(**methods: Any) -> None:
    for name, method in methods.items():
        setattr(ELBv2Backend, name, method)
