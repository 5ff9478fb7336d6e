"""Cases of launches: capacity, quotas, images, and what the operator asks for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from cdk_rehearsal.embedded_aws.base.reservations import Reservation
from deeplearning_contract.names import ROLE_TAG
from deeplearning_rehearsal.cases.case import MASTERS, WORKERS, CloudFaults, Digits, case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

BLOCK = "cr-0123456789abcdef0"
SOLD_IN_BLOCKS = "p4d.24xlarge"


def read_worker_group(run: "ClusterCase") -> Mapping[str, Any]:
    """Return the workers' group, as Auto Scaling describes it."""
    tagged = [{"Name": f"tag:{ROLE_TAG}", "Values": ["worker"]}]
    groups: list[Mapping[str, Any]] = run.client("autoscaling").describe_auto_scaling_groups(Filters=tagged)[
        "AutoScalingGroups"
    ]
    (group,) = groups
    return group


@case(
    "The image does not exist, so Auto Scaling refuses the group: the stack fails and names the image",
    faults=[6, 13],
    expect="failed",
    workers=2,
    min_capacity=0,
    minutes=4,
    cloud=CloudFaults(
        launch_faults=[
            LaunchFault(
                "InvalidAMIID.NotFound",
                at_creation=True,
                message="The image id '[ami-0123456789abcdef0]' does not exist",
            )
        ]
    ),
)
def bad_image(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "You must use a valid fully-formed launch template" in seen.reason
    assert "ami-0123456789abcdef0" in seen.reason
    assert seen.launches == 0


@case(
    "A Capacity Block begins after the deployment: the master forms alone and completes the stack, the page says until "
    "when the workers wait, and they launch, join and train once it begins",
    faults=[75],
    workers=2,
    min_capacity=2,
    context={
        "workers.purchase": f"capacity-block:{BLOCK}",
        "workers.instance_type": SOLD_IN_BLOCKS,
        "network.availability_zone": "us-east-1a",
    },
    cloud=CloudFaults(
        reservations=[
            Reservation(
                id=BLOCK,
                zone="us-east-1a",
                instance_type=SOLD_IN_BLOCKS,
                instances=2,
                begins=172800.0,
            )
        ]
    ),
    proves_rights=True,
    job=Digits(),
    environment="shared",
)
def block_begins_later(run: "ClusterCase") -> None:
    run.wait_for_formation()
    state = run.situation.state()
    assert state is not None
    assert len(state.members) == 1
    waiting = f"workers wait for the block {BLOCK} until 20"
    assert waiting in run.await_status(waiting)
    assert read_worker_group(run)["DesiredCapacity"] == 0
    run.inject("the block begins")
    run.aws.begin_reservation(BLOCK)
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.generation >= 2
    assert not any("launch failed" in event.text for event in run.timeline.events)
    assert read_worker_group(run)["DesiredCapacity"] == 2
    assert waiting not in run.await_status("FORMED, 3 of 3 nodes")


@case(
    "A worker dies at each boot: after three of them no more is launched, and the stack fails with the reason",
    faults=[43],
    expect="failed",
    workers=2,
    min_capacity=2,
    minutes=10,
)
def breaker(run: "ClusterCase") -> None:
    run.worker(2).wait_for_boot()
    run.worker(2).power_off(found_dead_after=3)
    run.worker(3).wait_for_boot()
    run.worker(3).power_off(found_dead_after=3)
    run.worker(4).wait_for_boot()
    run.worker(4).power_off(found_dead_after=3)
    seen = run.finish()
    assert "health check" in seen.reason
    assert seen.launches <= 6
    assert seen.failure_seconds <= 180


@case(
    "No worker has capacity, below the minimum: the stack fails with the reason in under a minute",
    faults=[2],
    expect="failed",
    workers=3,
    min_capacity=1,
    minutes=4,
    cloud=CloudFaults(launch_faults=[LaunchFault("InsufficientInstanceCapacity", tags=WORKERS)]),
    proves_rights=True,
)
def capacity_none(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "We currently do not have sufficient" in seen.reason
    assert seen.failure_seconds <= 60


@case(
    "One of three workers has no capacity: the cluster forms with the rest, says why, and runs a job",
    faults=[1, 9],
    workers=3,
    min_capacity=1,
    formed=3,
    cloud=CloudFaults(launch_faults=[LaunchFault("InsufficientInstanceCapacity", tags=WORKERS, from_ordinal=3)]),
    proves_rights=True,
)
def capacity_one_of_three(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 4
    assert "We currently do not have sufficient" in seen.reason


@case(
    "The image goes away after its groups were made, so every launch fails alike: the stack fails with the "
    "reason in under a minute",
    faults=[6, 13],
    expect="failed",
    workers=2,
    min_capacity=0,
    minutes=4,
    cloud=CloudFaults(
        launch_faults=[
            LaunchFault("InvalidAMIID.NotFound", message="The image id '[ami-0123456789abcdef0]' does not exist")
        ]
    ),
)
def image_gone(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "ami-0123456789abcdef0" in seen.reason
    assert seen.failure_seconds <= 60


@case(
    "The key of the volumes refuses Auto Scaling: the stack fails and names the key, the role and the rights "
    "that it lacks",
    faults=[6],
    expect="failed",
    workers=2,
    min_capacity=1,
    minutes=4,
    cloud=CloudFaults(launch_faults=[LaunchFault("Client.InvalidKMSKey.InvalidState")]),
)
def kms_denied(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "Client.InvalidKMSKey.InvalidState" in seen.reason
    assert "arn:aws:kms:" in seen.reason
    assert "AWSServiceRoleForAutoScaling" in seen.reason
    assert "kms:CreateGrant" in seen.reason
    assert seen.failure_seconds <= 120


@case(
    "The operator adds a worker to the formed cluster: it joins the next generation, and runs a job with the others",
    faults=[48],
    workers=2,
    context={"workers.max_capacity": 3},
    formed=4,
)
def late_worker(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("the operator asks for 3 workers")
    group = read_worker_group(run)["AutoScalingGroupName"]
    run.client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3)
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.requested == 3
    assert seen.generation >= 2
    assert seen.replacements


@case(
    "The account's vCPU quota is used up: the stack fails and names the quota in under a minute",
    faults=[5],
    expect="failed",
    workers=2,
    min_capacity=2,
    minutes=4,
    cloud=CloudFaults(launch_faults=[LaunchFault("VcpuLimitExceeded", tags=WORKERS)]),
)
def quota(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "vCPU" in seen.reason
    assert seen.failure_seconds <= 60


@case(
    "AWS validates the region, and the first launches fail: the cluster waits, says for what, and forms whole",
    faults=[7],
    workers=2,
    min_capacity=1,
    cloud=CloudFaults(
        launch_faults=[
            LaunchFault("PendingVerification", tags=MASTERS, ordinals=frozenset({1, 2})),
            LaunchFault("PendingVerification", tags=WORKERS, ordinals=frozenset({1, 2})),
        ]
    ),
)
def region_validated(run: "ClusterCase") -> None:
    run.wait_for_line("launch failed: PendingVerification")
    seen = run.finish()
    assert seen.requested == 3
    assert seen.says("launch failed: PendingVerification")
    page = run.await_status("being validated", "wait for AWS's mail")
    assert "being validated" in page
    assert "wait for AWS's mail" in page


@case("No workers are asked for: the master is the cluster, and runs a job", faults=[12], workers=0, min_capacity=0)
def zero_workers(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.requested == 1
