"""The faults of a rehearsal: capacity that is missing from the first launch on, and what strikes complete stacks."""

import ipaddress
from collections.abc import Sequence

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from cdk_rehearsal.faults.target import Fault, find_groups
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.run.run import Run

_REPLACEMENT_SECONDS = 120.0
"""Longest wait for a replacement; on AWS it takes minutes until EC2 reports an instance as ended."""


def make_launch_faults(fault: Fault | None, stacks: Sequence[AssemblyStack]) -> tuple[LaunchFault, ...]:
    """Return the launches that fail because of a fault: with missing capacity, each of every group."""
    if fault != "capacity":
        return ()
    return tuple(LaunchFault("InsufficientInstanceCapacity", tags=group.tags) for group in find_groups(stacks))


def strike(fault: Fault | None, run: Run, stacks: Sequence[AssemblyStack]) -> list[str]:
    """Let a fault strike complete stacks, and return what did not become as it must."""
    if fault not in ("instance", "network"):
        return []
    groups = find_groups(stacks)
    running = (each for group in groups for each in run.machines if group.tags.items() <= each.tags.items())
    victim = next(running, None)
    if victim is None:
        return [f"fault {fault} must strike an instance of a group, none runs"]
    if fault == "network":
        _cut_network(run, victim)
        return []
    return _end_instance(run, victim)


def _cut_network(run: Run, victim: Machine) -> None:
    """Cut the subnet of a machine off, as FIS does by a network ACL: within the subnet, packets still pass."""
    subnet = _find_subnet(victim)
    for machine in run.machines:
        if _find_subnet(machine) == subnet:
            run.lab.cut_off(machine.instance_id)
            run.fleet.timeline.report(run.fleet.lane(machine.instance_id), f"is cut off from all outside {subnet}")


def _find_subnet(machine: Machine) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(f"{machine.address}/{machine.prefix_length}", strict=False)


def _end_instance(run: Run, victim: Machine) -> list[str]:
    client = run.client("autoscaling")
    (entry,) = client.describe_auto_scaling_instances(InstanceIds=[victim.instance_id])["AutoScalingInstances"]
    name = entry["AutoScalingGroupName"]

    def is_replaced() -> bool:
        (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        states = {each["InstanceId"]: each["LifecycleState"] for each in group["Instances"]}
        in_service = sum(state == "InService" for state in states.values())
        return victim.instance_id not in states and in_service >= group["DesiredCapacity"]

    run.power_off(victim)
    try:
        run.wait_until(is_replaced, _REPLACEMENT_SECONDS)
    except AssertionError:
        latest = client.describe_scaling_activities(AutoScalingGroupName=name)["Activities"][0]["Description"]
        return [f"{name} must replace {victim.instance_id} in {_REPLACEMENT_SECONDS:g} s, its last activity: {latest}"]
    return []
