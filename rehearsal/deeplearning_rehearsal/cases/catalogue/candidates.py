"""Cases of clusters with fallbacks: capacity that is missing in the first zone, or in all of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.embedded_aws.base.capacity_pools import CapacityPool
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from deeplearning_contract.names import CANDIDATE_TAG, FIRST_CANDIDATE
from deeplearning_rehearsal.cases.case import MASTERS, WORKERS, CloudFaults, case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

FIRST, SECOND, THIRD = "us-east-1a", "us-east-1b", "us-east-1c"
TYPE, OTHER_TYPE = "g5.12xlarge", "p4d.24xlarge"
"""Types of one image, and of two quotas."""
CONTEXT: Mapping[str, Any] = {
    "network.availability_zone": FIRST,
    "workers.fallbacks": SECOND,
    "workers.patience": "1m",
}
FIRST_GROUPS = {CANDIDATE_TAG: FIRST_CANDIDATE}
FULL = CapacityPool(FIRST, 0)
_LIVE = ("pending", "running")


def list_live(run: "ClusterCase") -> list[Mapping[str, Any]]:
    """Return the instances that live, as EC2 describes them."""
    filters = [{"Name": "instance-state-name", "Values": list(_LIVE)}]
    pages = run.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
    return [instance for page in pages for each in page["Reservations"] for instance in each["Instances"]]


def list_zones(run: "ClusterCase") -> set[str]:
    """Return the zones in which instances live."""
    return {instance["Placement"]["AvailabilityZone"] for instance in list_live(run)}


def list_refused(run: "ClusterCase") -> list[str]:
    """Return the candidates that the cluster's state names as refused, in order."""
    state = run.situation.state()
    return [] if state is None else [attempt.candidate for attempt in state.attempts]


def is_leaving(run: "ClusterCase") -> bool:
    """Return whether the groups of the first candidate launch nothing any more."""
    groups = run.client("autoscaling").describe_auto_scaling_groups(
        Filters=[{"Name": f"tag:{CANDIDATE_TAG}", "Values": [FIRST_CANDIDATE]}]
    )["AutoScalingGroups"]
    return any(process["ProcessName"] == "Launch" for group in groups for process in group["SuspendedProcesses"])


def await_departure(run: "ClusterCase") -> None:
    """Wait until the first candidate is being left."""
    run.wait_for_line("launch failed: InsufficientInstanceCapacity")
    run.wait_for("the first zone is left", lambda: is_leaving(run))


@case(
    "The first zone has no capacity: the cluster launches in the second, runs a job there, and has nothing in "
    "the first",
    faults=[72],
    workers=2,
    min_capacity=1,
    context=CONTEXT,
    cloud=CloudFaults(pools=[FULL]),
    proves_rights=True,
)
def second_zone(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 3
    assert list_zones(run) == {SECOND}
    assert list_refused(run) == [FIRST_CANDIDATE]
    state = run.situation.state()
    assert state is not None
    assert state.candidate.startswith(SECOND)


@case(
    "The first zone has fewer instances than the minimum: what came is taken back, and the second zone runs a job",
    faults=[72],
    workers=3,
    min_capacity=3,
    context=CONTEXT,
    cloud=CloudFaults(pools=[CapacityPool(FIRST, 3)]),
)
def first_partial(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 4
    assert seen.launches == 7
    assert list_zones(run) == {SECOND}


@case(
    "The first zone has the minimum: the cluster forms with it, and the second zone is not asked",
    faults=[72],
    workers=3,
    min_capacity=1,
    formed=3,
    context=CONTEXT,
    cloud=CloudFaults(
        launch_faults=[LaunchFault("InsufficientInstanceCapacity", tags=WORKERS | FIRST_GROUPS, from_ordinal=3)]
    ),
)
def partial_kept(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.launches == 3
    assert list_zones(run) == {FIRST}
    assert "We currently do not have sufficient" in seen.reason


@case(
    "No zone has capacity: the stack fails once the time of the search is over, and names each candidate's reason",
    faults=[73],
    expect="failed",
    workers=2,
    min_capacity=1,
    minutes=10,
    context={**CONTEXT, "setup_timeout": "21m"},
    cloud=CloudFaults(pools=[FULL, CapacityPool(SECOND, 0)]),
)
def all_refused(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "no candidate gave at least 1 workers" in seen.reason
    assert FIRST in seen.reason
    assert SECOND in seen.reason
    assert seen.failure_seconds <= 360 + 60


@case(
    "The key of the volumes refuses Auto Scaling, which no candidate mends: the stack fails, and no other is asked",
    faults=[73],
    expect="failed",
    workers=2,
    min_capacity=1,
    minutes=4,
    context=CONTEXT,
    cloud=CloudFaults(launch_faults=[LaunchFault("Client.InvalidKMSKey.InvalidState", tags=FIRST_GROUPS)]),
)
def key_stops_search(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "Client.InvalidKMSKey.InvalidState" in seen.reason
    assert list_zones(run) <= {FIRST}
    assert seen.failure_seconds <= 120


@case(
    "The adjuster is killed while it leaves the first zone: a later invocation ends that, and the second zone "
    "runs a job",
    faults=[74],
    workers=2,
    min_capacity=2,
    context=CONTEXT,
    cloud=CloudFaults(pools=[CapacityPool(FIRST, 2)]),
)
def adjuster_killed_while_leaving(run: "ClusterCase") -> None:
    await_departure(run)
    run.inject("the adjuster is killed")
    run.aws.kill_function("CapacityAdjuster")
    seen = run.finish()
    assert seen.requested == 3
    assert list_zones(run) == {SECOND}
    assert not is_leaving(run)


@case(
    "All messages of Auto Scaling are lost while the first zone is left: the timer finds the second, which runs a job",
    faults=[74],
    workers=2,
    min_capacity=1,
    context=CONTEXT,
    minutes=10,
    cloud=CloudFaults(pools=[FULL], lose_notifications=True),
)
def events_lost_while_leaving(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 3
    assert list_zones(run) == {SECOND}


@case(
    "The first zone has capacity again while it is left: nothing launches there any more, and the second zone "
    "runs a job",
    faults=[72, 74],
    workers=2,
    min_capacity=2,
    context=CONTEXT,
    cloud=CloudFaults(pools=[CapacityPool(FIRST, 1, seconds=5)]),
)
def late_launch_after_leaving(run: "ClusterCase") -> None:
    await_departure(run)
    seen = run.finish()
    assert seen.requested == 3
    assert list_zones(run) == {SECOND}


@case(
    "There is no spot instance in the zone: the workers launch on demand there, and train",
    faults=[72],
    workers=2,
    min_capacity=1,
    context={
        **CONTEXT,
        "workers.purchase": "spot",
        "workers.fallbacks": [{"availability_zone": FIRST, "purchase": "on-demand"}],
    },
    cloud=CloudFaults(pools=[CapacityPool(FIRST, 0, is_spot=True)]),
)
def spot_then_on_demand(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 3
    assert list_refused(run) == [FIRST_CANDIDATE]
    assert not [instance for instance in list_live(run) if instance.get("InstanceLifecycle") == "spot"]


@case(
    "The zone has none of the instance type: the cluster launches with another type there, and runs a job",
    faults=[72],
    workers=2,
    min_capacity=2,
    context={
        **CONTEXT,
        "workers.instance_type": TYPE,
        "workers.fallbacks": [{"availability_zone": FIRST, "instance_type": OTHER_TYPE}],
        "master.instance_type": "m5.large",
    },
    cloud=CloudFaults(pools=[CapacityPool(FIRST, 0, instance_type=TYPE)]),
)
def second_type(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 3
    assert sorted(instance["InstanceType"] for instance in list_live(run)) == ["m5.large", OTHER_TYPE, OTHER_TYPE]


@case(
    "The first zone has workers and no master: the workers are taken back, and the second zone runs a job",
    faults=[72],
    workers=2,
    min_capacity=2,
    context=CONTEXT,
    cloud=CloudFaults(launch_faults=[LaunchFault("InsufficientInstanceCapacity", tags=MASTERS | FIRST_GROUPS)]),
)
def master_refused(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 3
    assert seen.launches == 5
    assert list_zones(run) == {SECOND}


@case(
    "The quota of the first type is used up: the second zone with that type is not asked, and another type runs a job",
    faults=[72],
    workers=2,
    min_capacity=2,
    context={
        **CONTEXT,
        "workers.instance_type": TYPE,
        "workers.fallbacks": [SECOND, {"availability_zone": THIRD, "instance_type": OTHER_TYPE}],
    },
    cloud=CloudFaults(launch_faults=[LaunchFault("VcpuLimitExceeded", tags=WORKERS | FIRST_GROUPS)]),
)
def quota_rests_siblings(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 3
    assert list_refused(run) == [FIRST_CANDIDATE]
    assert list_zones(run) == {THIRD}


@case(
    "Two zones have no capacity: the cluster launches in the third, which has a mount target of its own, and "
    "runs a job",
    faults=[72],
    workers=2,
    min_capacity=1,
    context={**CONTEXT, "workers.fallbacks": f"{SECOND},{THIRD}"},
    cloud=CloudFaults(pools=[FULL, CapacityPool(SECOND, 0)]),
)
def third_zone(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 3
    assert list_zones(run) == {THIRD}
    assert len(list_refused(run)) == 2


@case(
    "A worker dies in the second zone, while the first has capacity again: it is replaced where the cluster is",
    faults=[72],
    workers=2,
    min_capacity=1,
    context=CONTEXT,
    cloud=CloudFaults(pools=[CapacityPool(FIRST, 0, seconds=1)]),
)
def worker_lost_after_move(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.worker(1).power_off(found_dead_after=5)
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.replacements
    assert list_zones(run) == {SECOND}
    assert list_refused(run) == [FIRST_CANDIDATE]


@case(
    "Auto Scaling refuses to create a group at all: the stack fails with its reason, and no other zone is asked",
    faults=[73],
    expect="failed",
    workers=2,
    min_capacity=1,
    minutes=4,
    context=CONTEXT,
    cloud=CloudFaults(
        launch_faults=[LaunchFault("Unsupported", tags=WORKERS, at_creation=True)],
    ),
)
def creation_refused(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "is not supported in your requested Availability Zone" in seen.reason
    assert seen.launches == 0
