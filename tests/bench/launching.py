"""Cost of `deeplearning run`: one job through it and through bare horovodrun, in pairs on a rehearsed cluster."""

import contextlib
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from deeplearning_command.jobs.start_job import SOURCE_FOLDER
from deeplearning_contract.names import JOBS_FOLDER
from deeplearning_rehearsal.checks.training import PROGRAM, read_result
from deeplearning_rehearsal.launchers.trials import BARE_HOROVODRUN, run_command
from tests.bench.figure import Figure, take_median
from tests.bench.synthesis import synthesize

PROGRAM_PATH = Path(sys.executable).with_name("deeplearning-cdk")
CONTEXT = {
    "workers.desired_capacity": "1",
    "workers.instance_type": "c5.2xlarge",
    "master.instance_type": "c5.2xlarge",
    "software.image": "deep-learning-ubuntu",
}
NODES = 2
PAIRS = 8
"""An even number, so that each way is the first of a pair as often as the other."""
GOAL = 0.98
TRAINING_SECONDS = 10.0
"""So long each job is made to train; shorter ones measure the noise of a shared machine."""
SHORTEST_SECONDS = 8.0
FIRST_EPOCHS = 15
_LENGTHENINGS = 3
JOB = f"{PROGRAM} --width 4096 --batch 1438"
"""A model whose steps are work for the processor: those of a small one are mostly waiting for the other rank."""
_SOURCE = f'"$EFS_MOUNT"/{JOBS_FOLDER}/*/{SOURCE_FOLDER}/*'
"""The program's folder, where the rehearsal's own job left it."""
_KEPT = "the cluster keeps running"

Ask = Callable[[str], str]
"""From a shell command for the master to what it printed."""


def measure_launching(report: Callable[[str], None], out: Path) -> list[Figure]:
    """
    Train the same job both ways in pairs.

    Args:
        report: Called with what is measured.
        out: Where the rehearsal's report goes.

    Raises:
        RuntimeError: A job failed, or the rehearsal did.
    """
    report("a cluster of two is rehearsed and kept")
    with kept_cluster(out) as ask:
        return measure_pairs(report, ask)


def measure_pairs(report: Callable[[str], None], ask: Ask) -> list[Figure]:
    """Train the same job both ways in pairs, on a cluster whose master is asked."""
    epochs = find_epochs(ask)
    by_throughput, by_cpu = [], []
    for number in range(PAIRS):
        order = ("run", "bare") if number % 2 == 0 else ("bare", "run")
        results = {way: train(ask, way, f"bench-{number}-{way}", epochs) for way in order}
        run, bare = results["run"], results["bare"]
        by_throughput.append(run["samples_per_second"] / bare["samples_per_second"])
        by_cpu.append(bare["cpu_seconds"] / run["cpu_seconds"])
        report(f"pair {number + 1} of {PAIRS}: throughput {by_throughput[-1]:.3f}, CPU time {by_cpu[-1]:.3f}")
    return [
        take_median("throughput through `deeplearning run` against bare `horovodrun`", by_throughput, at_least=GOAL),
        take_median("CPU time of the ranks of bare `horovodrun` against `deeplearning run`", by_cpu),
    ]


def find_epochs(ask: Ask) -> int:
    """Lengthen a job until it trains long enough: a short one is slower than the same job when it is warm."""
    epochs = FIRST_EPOCHS
    for number in range(_LENGTHENINGS):
        result = train(ask, "run", f"bench-length-{number}", epochs)
        if result["seconds"] >= SHORTEST_SECONDS:
            break
        epochs = math.ceil(TRAINING_SECONDS * result["samples_per_second"] / result["trained_on"])
    return epochs


def train(ask: Ask, way: str, name: str, epochs: int) -> dict[str, Any]:
    """
    Train one job, `run` or `bare`, and return its own result.

    Raises:
        RuntimeError: It did not train on both nodes.
    """
    program = f'{JOB} --out "$EFS_MOUNT/{name}" --epochs {epochs}'
    command = run_command("horovod", program, name=name) if way == "run" else f"{BARE_HOROVODRUN} {program}"
    result = read_result(ask(f"cd {_SOURCE} && {command}"))
    if len(set(result["hosts"])) != NODES or result["ranks"] != NODES:
        raise RuntimeError(f"{name} must train with a rank on each of {NODES} nodes, got {result}")
    return result


@contextlib.contextmanager
def kept_cluster(out: Path) -> Iterator[Ask]:
    """Rehearse a cluster of two nodes without GPUs, which trains once and is kept until the block ends."""
    assembly = out / "cdk.out"
    context = [word for key, value in CONTEXT.items() for word in ("-c", f"{key}={value}")]
    synthesize([sys.executable, "app.py", *context], assembly)
    command = [PROGRAM_PATH, "rehearse", assembly, "--keep", "--gpus-per-node", "0", "--out", out]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as rehearsal:
        assert rehearsal.stdout is not None
        try:
            said = []
            for line in rehearsal.stdout:
                said.append(line)
                if _KEPT in line:
                    break
            else:
                raise RuntimeError(f"the rehearsal must pass, got:\n{''.join(said)}")

            def ask(line: str) -> str:
                words = [PROGRAM_PATH, "ssh", "--rehearsal", out, "--", "bash", "-c", line]
                answer = subprocess.run(words, check=False, capture_output=True, text=True)
                if answer.returncode != 0:
                    said = f"{answer.stdout}{answer.stderr}"
                    raise RuntimeError(f"{line} must end with 0, got {answer.returncode}: {said}")
                return answer.stdout

            yield ask
        finally:
            rehearsal.send_signal(signal.SIGINT)
            rehearsal.communicate()
