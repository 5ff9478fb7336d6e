"""Cases on Amazon EMR."""

from typing import TYPE_CHECKING

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from deeplearning_rehearsal.cases.case import CloudFaults, Digits, case
from deeplearning_rehearsal.cases.catalogue.spending import AWAIT_NOTICE

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

EMR = {"platform": "emr", "members": 2, "instance_type": "m5.xlarge"}


@case(
    "On EMR the image lacks the Python that runs the agent: the bootstrap action names it, EMR terminates the "
    "cluster, and the stack rolls back with EMR's words",
    faults=[6],
    expect="failed",
    context=EMR | {"image": "ami-0123456789abcdef0"},
    minutes=4,
    proves_rights=True,
)
def emr_bootstrap_fails(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.says("standard error ends with: prepare_member: the image has no /usr/bin/python3.12")
    assert "BOOTSTRAP_FAILURE" in seen.reason
    assert "bootstrap action 1 returned a non-zero return code" in seen.reason


@case(
    "On EMR the operator changes tags and protection, and a core node reboots: its disks are unlocked, and it is "
    "a member again",
    faults=[49],
    expect="formed",
    context=EMR,
    formed=2,
    minutes=6,
    proves_rights=True,
)
def emr_cluster_changed(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("the operator changes tags and termination protection")
    emr = run.client("emr")
    (cluster,) = (each["Id"] for each in emr.list_clusters()["Clusters"])
    emr.add_tags(ResourceId=cluster, Tags=[{"Key": "stage", "Value": "trial"}])
    emr.remove_tags(ResourceId=cluster, TagKeys=["stage"])
    for is_protected in (True, False):
        emr.set_termination_protection(JobFlowIds=[cluster], TerminationProtected=is_protected)
    run.worker(1).wait_for_line("install generation")
    run.worker(1).reboot()
    seen = run.finish()
    assert seen.changed_files
    assert not any(seen.changed_files.values())


@case(
    "On EMR a core node dies: its replacement joins by itself, and the cluster trains in a step",
    faults=[45],
    context={"platform": "emr", "members": 3},
    gpus_per_node=2,
    minutes=15,
    proves_rights=True,
    job=Digits(),
    environment="shared",
)
def emr_core_node_lost(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.worker(2).power_off(found_dead_after=0)
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.generation >= 2
    assert seen.replacements
    assert seen.says("step deeplearning job train_digits COMPLETED")


@case(
    "On EMR the driver of the instances is older than the CUDA of their software needs: provisioning fails with both "
    "versions and the remedy, and jobs are refused with them",
    faults=[76],
    expect="formed",
    context=EMR | {"software.environment": "horovod", "instance_type": "g5.12xlarge"},
    gpus_per_node=4,
    formed=2,
    environment="shared",
)
def emr_driver_too_old(run: "ClusterCase") -> None:
    for node in (run.master, run.worker(1)):
        node.wait_for_boot()
        node.set_driver("535.183.01", cuda="13.0.96")
    run.wait_for_steps(failed="environment")
    seen = run.finish()
    versions = "CUDA 13.0 of the software of jobs needs NVIDIA driver 580 or newer, the host has 535.183.01"
    assert seen.environment.state == "failed"
    assert versions in seen.environment.detail
    assert "another release or image that has a newer driver" in seen.environment.detail
    assert run.master.log_in("! deeplearning run -- true") == "status 0"
    assert run.master.log_in(f"deeplearning run -- true 2>&1 | grep '{versions}'") == "status 0"


@case(
    "On EMR the file system's name does not resolve, as without a mount target: EMR terminates the cluster, and "
    "the node names the mount",
    faults=[51],
    expect="failed",
    context=EMR,
)
def emr_mount_target_absent(run: "ClusterCase") -> None:
    run.worker(1).wait_for_boot()
    run.worker(1).break_mounts("unresolvable", seconds=3600)
    seen = run.finish()
    assert "BOOTSTRAP_FAILURE" in seen.reason
    assert "bootstrap action 1 returned a non-zero return code" in seen.reason
    assert seen.says("standard error ends with: ")
    assert seen.says("mount the file system")
    assert seen.failure_seconds <= 400


@case(
    "On EMR the root volume is smaller than the image's snapshot: EMR refuses to launch, and the stack names "
    "both sizes",
    faults=[6],
    expect="failed",
    context=EMR | {"image": "ami-0123456789abcdef0", "root_volume": 80},
    minutes=4,
    cloud=CloudFaults(
        launch_faults=[
            LaunchFault(
                "InvalidBlockDeviceMapping",
                message="Volume of size 80GB is smaller than snapshot 'snap-0123456789abcdef0', expect size >= 90GB",
            )
        ]
    ),
)
def emr_root_volume_too_small(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "VALIDATION_ERROR" in seen.reason
    assert "Volume of size 80GB is smaller than snapshot" in seen.reason
    assert "expect size >= 90GB" in seen.reason
    assert seen.launches == 0


@case(
    "The time of a cluster on EMR is over: its nodes get a notice, its primary powers itself off, and EMR "
    "terminates the cluster",
    expect="stopped",
    context=EMR | {"stop_after": "10m"},
    gpus_per_node=0,
    minutes=14,
)
def emr_stop_after(run: "ClusterCase") -> None:
    run.wait_for_formation()
    # Less than a quarter of an hour is left: the primary publishes the notice, a core node reads it in a minute.
    run.master.execute(AWAIT_NOTICE.format(50))
    run.worker(1).execute(AWAIT_NOTICE.format(90))
    seen = run.finish()
    assert seen.stack == "CREATE_COMPLETE"
    assert seen.launches <= 2
    assert seen.says("powers itself off")
    assert seen.says("The master node was terminated")


@case(
    "On EMR a job outside of YARN and of any step runs longer than the idle time, and keeps the cluster, which "
    "ends when it is idle",
    expect="stopped",
    context=EMR | {"software.environment": "none", "stop_when_idle": "1m"},
    gpus_per_node=0,
    minutes=10,
)
def emr_stop_when_idle(run: "ClusterCase") -> None:
    run.wait_for_formation()
    # A job runs, as the command knows jobs: by the variable of its processes. A minute is the shortest time of EMR.
    run.worker(1).execute(
        "runuser -u hadoop -- env DEEPLEARNING_JOB=digits/1 setsid sleep 150 </dev/null >/dev/null 2>&1 &"
    )
    # EMR measures each minute: after more than two minutes the job has kept the cluster.
    run.wait(140)
    run.worker(1).execute("grep -q 'digits/1' /proc/[0-9]*/environ")
    seen = run.finish()
    assert seen.stack == "CREATE_COMPLETE"
    assert seen.launches <= 2
    assert seen.says("Cluster was idle for the time of its policy")
