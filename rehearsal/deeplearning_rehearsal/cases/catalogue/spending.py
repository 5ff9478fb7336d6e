"""Cases of clusters that end by themselves."""

from typing import TYPE_CHECKING

from deeplearning_rehearsal.cases.case import case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

AWAIT_NOTICE = """
for second in $(seq {}); do
    grep -q 'stops by itself' /opt/deeplearning/notice && exit
    sleep 1
done
exit 1
"""
"""Waits so many seconds for the notice of the end."""


@case(
    "A cluster's time is over: its nodes are told a quarter of an hour before, and then all of it stops",
    expect="stopped",
    workers=1,
    min_capacity=1,
    context={"workers.instance_type": "m5.large", "spending.stop_after": "1h"},
    gpus_per_node=0,
    minutes=12,
    proves_rights=True,
)
def stop_after(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("the groups were made 46 minutes earlier")
    run.aws.age_groups(2760)
    # A tick of the adjuster comes within a minute, the master reads the item in ten seconds, a worker in a minute.
    run.wait(40)
    run.master.execute(AWAIT_NOTICE.format(50))
    run.wait(20)
    run.worker(1).execute(AWAIT_NOTICE.format(50))
    run.wait(1)
    run.inject("the groups were made 15 minutes earlier still")
    run.aws.age_groups(900)
    seen = run.finish()
    assert seen.stack == "CREATE_COMPLETE"
    assert seen.launches <= 2
    assert seen.says("Deep Learning Cluster Finished deadline")


@case(
    "A cluster that nobody uses ends by itself, and one whose job runs does not",
    faults=[68],
    expect="stopped",
    workers=1,
    min_capacity=1,
    context={"workers.instance_type": "g5.xlarge", "software.environment": "none", "spending.stop_when_idle": "10m"},
    minutes=12,
    proves_rights=True,
)
def stop_when_idle(run: "ClusterCase") -> None:
    run.wait_for_formation()
    # A job runs, as the command knows jobs: by the variable of its processes.
    run.worker(1).execute(
        "runuser -u ubuntu -- env DEEPLEARNING_JOB=digits/1 setsid sleep 150 </dev/null >/dev/null 2>&1 &"
    )
    run.wait(1)
    # Ten minutes are the shortest time of the prop; the master is told five seconds instead.
    run.master.execute(
        "sed -i 's/--seconds 600$/--seconds 5/' /etc/systemd/system/deeplearning-idle.service && systemctl "
        "daemon-reload && systemctl restart deeplearning-idle.service"
    )
    # It looks at once and then each minute: after two looks the job has kept the cluster.
    run.wait(90)
    run.worker(1).execute("grep -q 'digits/1' /proc/[0-9]*/environ")
    seen = run.finish()
    assert seen.stack == "CREATE_COMPLETE"
    assert seen.launches <= 2
    assert seen.says("Deep Learning Cluster Finished idle")
