"""Cases of nodes that are lost while the cluster forms or trains."""

from typing import TYPE_CHECKING

from deeplearning_rehearsal.cases.case import Digits, Elastic, case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.case_node import CaseNode
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase


def keep_from_acknowledging(worker: "CaseNode") -> None:
    """Stop a worker's agent right after it has joined, so that the cluster is published and does not form."""
    worker.wait_for_boot()
    worker.execute(
        """
        setsid sh -c '
            until grep -q "reported joined" /var/log/deeplearning-agent.log; do sleep 0.02; done
            pkill -STOP -f "[-]m deeplearning_agent"
        ' > /dev/null 2>&1 &
        """
    )


@case(
    "The master dies before it publishes the members: its replacement forms the cluster",
    faults=[46],
    workers=2,
    min_capacity=1,
)
def master_killed_before_publish(run: "ClusterCase") -> None:
    # A worker that cannot mount yet, and so has not joined, keeps the master from publishing until it has died.
    run.worker(2).wait_for_boot()
    run.worker(2).break_mounts("unresolvable", seconds=90)
    run.wait_for_state("launched")
    run.master.power_off()
    seen = run.finish()
    assert seen.replacements


@case(
    "The master dies after it has published and before the cluster has formed: its replacement takes over",
    faults=[47],
    workers=2,
    min_capacity=1,
    job=Digits(),
)
def master_killed_after_publish(run: "ClusterCase") -> None:
    keep_from_acknowledging(run.worker(1))
    run.wait_for_state("published")
    run.master.power_off()
    run.wait(1)
    run.worker(1).execute('pkill -CONT -f "[-]m deeplearning_agent"')
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.generation >= 2
    assert seen.replacements


@case(
    "The master dies in training: its replacement takes over and trains on from the last checkpoint, by itself",
    faults=[45],
    workers=2,
    min_capacity=1,
    job=Elastic(epochs=24),
    minutes=12,
)
def master_killed_training(run: "ClusterCase") -> None:
    run.wait_for_commits(6, ranks=3)
    run.master.power_off(found_dead_after=15)
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.generation >= 2
    assert seen.lost_commits <= 1
    assert seen.replacements
    assert seen.has_regained_size


@case(
    "EC2 takes a spot worker back: it says goodbye, training checkpoints and goes on, and the replacement joins",
    faults=[50],
    workers=2,
    min_capacity=1,
    context={"workers.purchase": "spot"},
    job=Elastic(epochs=30),
    minutes=12,
)
def spot_notice(run: "ClusterCase") -> None:
    run.wait_for_commits(4, ranks=3)
    run.worker(1).announce_interruption(seconds=60)
    run.wait_for_generation(2)
    run.wait_for_line("reported leaving")
    seen = run.finish()
    assert seen.generation >= 2
    assert seen.says("reported leaving")
    assert seen.replacements
    assert seen.has_regained_size


@case(
    "A worker dies in training: training goes on in 15 s, loses nothing that was committed, and takes the "
    "replacement in",
    faults=[45],
    workers=3,
    min_capacity=1,
    job=Elastic(epochs=24),
    minutes=10,
    proves_rights=True,
    alone=True,
)
def worker_killed(run: "ClusterCase") -> None:
    run.wait_for_commits(4, ranks=4)
    run.worker(2).power_off(found_dead_after=15)
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.generation >= 2
    assert seen.recovery_seconds <= 15
    assert seen.lost_commits == 0
    assert seen.replacements
    assert seen.has_regained_size


@case(
    "A worker dies after it was ready, before it trains: it is found, left out, and replaced",
    faults=[44],
    workers=3,
    min_capacity=1,
    job=Digits(),
)
def worker_killed_after_ready(run: "ClusterCase") -> None:
    run.worker(2).wait_for_line("reported ready")
    run.worker(2).power_off()
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.generation >= 2
    assert seen.replacements


@case(
    "A worker dies before it acknowledges, and the minimum needs it: its replacement forms the cluster with the others",
    faults=[43],
    workers=2,
    min_capacity=2,
)
def worker_killed_after_publish(run: "ClusterCase") -> None:
    keep_from_acknowledging(run.worker(1))
    run.wait_for_state("published")
    run.worker(1).power_off()
    seen = run.finish()
    assert seen.generation >= 2
    assert seen.replacements


@case(
    "A worker dies before it has joined: its replacement forms the cluster with the others",
    faults=[43],
    workers=3,
    min_capacity=1,
)
def worker_killed_before_joining(run: "ClusterCase") -> None:
    run.worker(2).wait_for_boot()
    run.worker(2).power_off()
    seen = run.finish()
    assert seen.replacements


@case(
    "A worker falls silent in training: training goes on in 15 s, and the silent one is replaced",
    faults=[45],
    workers=3,
    min_capacity=1,
    job=Elastic(epochs=32),
    minutes=12,
    alone=True,
)
def worker_silent(run: "ClusterCase") -> None:
    run.wait_for_commits(4, ranks=4)
    run.worker(2).silence()
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.generation >= 2
    assert seen.recovery_seconds <= 15
    assert seen.lost_commits == 0
    assert seen.replacements
    assert seen.has_regained_size
