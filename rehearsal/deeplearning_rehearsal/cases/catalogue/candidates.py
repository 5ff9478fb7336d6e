"""Cases of clusters with fallbacks: capacity that is missing in the first zone, or in all of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.embedded_aws.base.capacity_pools import CapacityPool
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from deeplearning_contract.names import CANDIDATE_TAG, FIRST_CANDIDATE
from deeplearning_rehearsal.cases.case import WORKERS, CloudFaults, case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

FIRST, SECOND = "us-east-1a", "us-east-1b"
CONTEXT: Mapping[str, Any] = {
    "network.availability_zone": FIRST,
    "workers.fallbacks": SECOND,
    "workers.patience": "1m",
}
FIRST_GROUPS = {CANDIDATE_TAG: FIRST_CANDIDATE}
FULL = CapacityPool(FIRST, 0)
_LIVE = ("pending", "running")


def list_zones(run: "ClusterCase") -> set[str]:
    """Return the zones in which instances live."""
    filters = [{"Name": "instance-state-name", "Values": list(_LIVE)}]
    pages = run.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
    return {
        instance["Placement"]["AvailabilityZone"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    }


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
    "The first zone has no capacity: the cluster launches in the second, trains there, and has nothing in the first",
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
    state = run.situation.state()
    assert state is not None
    assert state.candidate.startswith(SECOND)
    assert [attempt.candidate for attempt in state.attempts] == [FIRST_CANDIDATE]


@case(
    "The first zone has fewer instances than the minimum: what came is taken back, and the second zone trains",
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
    "The adjuster is killed while it leaves the first zone: a later invocation ends that, and the second zone trains",
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
    "All messages of Auto Scaling are lost while the first zone is left: the timer finds the second, which trains",
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
    "The first zone has capacity again while it is left: nothing launches there any more, and the second zone trains",
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
