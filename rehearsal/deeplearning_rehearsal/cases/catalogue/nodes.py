"""Cases of single nodes: their images, disks, GPUs, mounts, services and restarts."""

from typing import TYPE_CHECKING

from deeplearning_rehearsal.cases.case import Digits, case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase


@case(
    "An image of Amazon Linux: nodes install efs-utils, mount through the access point with IAM and TLS, and "
    "train as ec2-user",
    workers=1,
    context={
        "software.image": "deep-learning-amazon-linux",
        "workers.instance_type": "g5.xlarge",
        "master.instance_type": "g5.xlarge",
    },
    job=Digits(),
    environment="shared",
)
def amazon_linux(run: "ClusterCase") -> None:
    run.finish()


@case(
    "The master has no GPU and its workers have: it leads, the workers form and train, and rank 0 is on the "
    "first of them",
    workers=2,
    min_capacity=2,
    context={"workers.instance_type": "g5.xlarge", "master.instance_type": "m5.large"},
    job=Digits(),
    environment="shared",
)
def cpu_master(run: "ClusterCase") -> None:
    run.master.wait_for_boot()
    run.master.set_gpus(0)
    run.finish()


@case(
    "A worker's disk is full: it is left out or replaced, and the others form and train",
    faults=[55],
    workers=2,
    min_capacity=1,
)
def disk_full(run: "ClusterCase") -> None:
    run.worker(2).wait_for_line("starting as worker")
    run.worker(2).fill_disk()
    seen = run.finish()
    assert seen.replacements


@case(
    "The nodes' driver is older than the CUDA of their software needs: provisioning fails with both versions and the "
    "remedy, and jobs are refused with them",
    faults=[76],
    expect="formed",
    workers=1,
    context={
        "software.environment": "horovod",
        "workers.instance_type": "g5.xlarge",
        "master.instance_type": "g5.xlarge",
    },
    environment="shared",
)
def driver_too_old(run: "ClusterCase") -> None:
    for node in (run.master, run.worker(1)):
        node.wait_for_boot()
        node.set_driver("535.183.01", cuda="13.0.96")
    run.wait_for_steps(failed="environment")
    seen = run.finish()
    versions = "CUDA 13.0 of the software of jobs needs NVIDIA driver 580 or newer, the host has 535.183.01"
    assert seen.environment.state == "failed"
    assert versions in seen.environment.detail
    assert "another software.image that has a newer driver" in seen.environment.detail
    assert versions in run.await_status(versions)
    assert run.master.log_in("! deeplearning run -- true") == "status 0"
    assert run.master.log_in(f"deeplearning run -- true 2>&1 | grep '{versions}'") == "status 0"


@case(
    "A worker's GPU has uncorrected memory errors: it never becomes a member, and is replaced",
    faults=[58],
    expect="formed",
    workers=2,
    min_capacity=1,
    context={"workers.instance_type": "g5.xlarge"},
)
def gpu_ecc(run: "ClusterCase") -> None:
    run.worker(2).wait_for_boot()
    run.worker(2).set_gpus(1, ecc_errors=3)
    run.wait_for_line("ECC")
    seen = run.finish()
    assert seen.says("ECC")
    assert seen.replacements


@case(
    "A worker shows no GPU though its type has one: it is left out with the reason, and replaced by a whole one",
    faults=[58],
    expect="formed",
    workers=2,
    min_capacity=1,
    context={"workers.instance_type": "g5.xlarge"},
    proves_rights=True,
)
def gpu_missing(run: "ClusterCase") -> None:
    run.worker(2).wait_for_boot()
    run.worker(2).set_gpus(0)
    run.wait_for_line("the instance type has 1 GPUs and the node shows 0")
    seen = run.finish()
    assert seen.says("the instance type has 1 GPUs and the node shows 0")
    assert seen.replacements


@case(
    "A worker that nothing can do without shows no GPU: the master says what failed, and the stack fails with it",
    faults=[58],
    expect="failed",
    workers=2,
    min_capacity=2,
    context={"workers.instance_type": "g5.xlarge"},
    minutes=5,
    proves_rights=True,
)
def gpu_missing_needed(run: "ClusterCase") -> None:
    run.worker(2).wait_for_boot()
    run.worker(2).set_gpus(0)
    seen = run.finish()
    assert "the instance type has 1 GPUs and the node shows 0" in seen.reason


@case(
    "nvidia-smi takes 25 seconds on every node: the cluster forms and runs a job, nobody is replaced and no job "
    "refused",
    faults=[68],
    workers=2,
    min_capacity=2,
    context={"workers.instance_type": "g5.xlarge"},
    minutes=15,
)
def gpu_slow(run: "ClusterCase") -> None:
    run.master.wait_for_boot()
    run.master.set_gpus(1, answer_seconds=25)
    run.worker(1).wait_for_boot()
    run.worker(1).set_gpus(1, answer_seconds=25)
    run.worker(2).wait_for_boot()
    run.worker(2).set_gpus(1, answer_seconds=25)
    run.wait_for_formation()
    # A job that starts now asks every host first.
    run.master.execute("runuser -u ubuntu -- /usr/local/bin/deeplearning plan --without-environment -- true")
    # The master has asked everybody twice since.
    run.wait(120)
    run.master.execute("runuser -u ubuntu -- /usr/local/bin/deeplearning health")
    seen = run.finish()
    assert seen.launches <= 3


@case(
    "The image rewrites /etc/hosts at each boot and the master reboots: the nodes' names are back, and the "
    "cluster runs a job",
    faults=[70],
    workers=2,
)
def hosts_file_rewritten(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.master.execute("echo 'manage_etc_hosts: true' > /etc/cloud/cloud.cfg.d/95-hosts.cfg")
    run.master.reboot()
    run.finish()
    assert run.master.log_in("grep 'manage_etc_hosts' /etc/hosts") == "status 0"
    assert run.master.log_in("grep deeplearning-worker2 /etc/hosts") == "status 0"


@case(
    "The metadata service of a worker takes three seconds for each answer: the cluster forms whole",
    faults=[52],
    expect="formed",
    workers=2,
)
def metadata_slow(run: "ClusterCase") -> None:
    run.worker(1).wait_for_boot()
    run.worker(1).slow_metadata(seconds=3)
    run.finish()


@case(
    "The master's file system never answers: the stack fails and names the mount, in minutes, not at the time-out",
    faults=[51, 61],
    expect="failed",
    workers=1,
    context={"setup_timeout": "10m"},
)
def mount_hangs(run: "ClusterCase") -> None:
    run.master.wait_for_boot()
    run.master.break_mounts("hang", seconds=3600)
    seen = run.finish()
    assert "mount the file system" in seen.reason
    assert seen.failure_seconds <= 240


@case(
    "A stack whose name contains the roles' names: each node has its role all the same",
    faults=[25],
    workers=2,
    context={"stack_name": "master-WorkerAutoScalingGroup"},
)
def name_contains_master(run: "ClusterCase") -> None:
    run.finish()


@case(
    "A worker cannot resolve its file system's name at first: it tries again, and the cluster forms whole",
    faults=[60],
    expect="formed",
    workers=2,
)
def name_resolves_late(run: "ClusterCase") -> None:
    run.worker(1).wait_for_boot()
    run.worker(1).break_mounts("unresolvable", seconds=30)
    run.finish()


@case(
    "A worker powers itself off and another reboots by itself: one is replaced, the other is back, and the "
    "cluster runs a job",
    faults=[71],
    workers=2,
)
def node_ends_itself(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.worker(1).execute("setsid sh -c 'sleep 1; systemctl poweroff' > /dev/null 2>&1 &")
    run.worker(2).execute("setsid sh -c 'sleep 1; systemctl reboot' > /dev/null 2>&1 &")
    run.wait_for_line("powers itself off")
    run.wait_for_line("reboots by itself")
    seen = run.finish()
    assert seen.replacements
    assert seen.says("powers itself off")
    assert seen.says("reboots by itself")


@case("A worker and the master reboot: no file changes, and the cluster trains", faults=[49], workers=2, job=Digits())
def node_rebooted(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.worker(1).reboot()
    run.wait(5)
    run.master.reboot()
    seen = run.finish()
    assert seen.changed_files
    assert not any(seen.changed_files.values())


@case(
    "Shared memory of a job outlives the logins of its user",
    faults=[69],
    expect="formed",
    workers=1,
    context={"software.environment": "none"},
)
def shared_memory(run: "ClusterCase") -> None:
    # logind removes what a user left in shared memory ten seconds after the last session; the master logs in each
    # minute.
    run.finish()
    assert (
        run.master.log_in(
            "ssh deeplearning-worker2 'head -c 4096 /dev/zero >/dev/shm/job' && sleep 15 && ssh deeplearning-worker2 "
            "test -s /dev/shm/job"
        )
        == "status 0"
    )


@case(
    "64 nodes form, with no more AWS calls than promised",
    expect="formed",
    workers=63,
    context={"workers.max_capacity": 63, "software.environment": "none"},
    minutes=12,
    alone=True,
)
def sixty_four_nodes(run: "ClusterCase") -> None:
    # Without an environment: 64 copies of PyTorch are too much for the memory of one machine.
    seen = run.finish()
    assert seen.requested == 64
    assert seen.calls <= seen.call_bound


@case("A worker's agent runs a tenth of the time: the cluster forms whole, only later", faults=[59], workers=2)
def slow_node(run: "ClusterCase") -> None:
    run.worker(2).wait_for_line("starting as worker")
    run.worker(2).execute(
        """
        setsid sh -c '
            while sleep 0.1; do
                pkill -STOP -f "[-]m deeplearning_agent"
                sleep 0.9
                pkill -CONT -f "[-]m deeplearning_agent"
            done
        ' > /dev/null 2>&1 &
        """
    )
    run.finish()


@case("A worker's SSH server starts late: the cluster forms, and a job reaches every node", faults=[57], workers=2)
def sshd_late(run: "ClusterCase") -> None:
    run.worker(2).wait_for_line("starting as worker")
    run.worker(2).stop_sshd()
    run.wait(20)
    run.worker(2).start_sshd()
    run.finish()


@case("User data runs a second time on master and worker: no file changes", faults=[49], workers=2)
def user_data_twice(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.worker(1).run_user_data_again()
    run.master.run_user_data_again()
    seen = run.finish()
    assert seen.changed_files
    assert not any(seen.changed_files.values())
