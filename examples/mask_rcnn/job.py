#!/usr/bin/env python3
"""
Runs TensorPack's Mask R-CNN on COCO 2017 on the whole cluster, with the schedule that fits the cluster's size.

    job.py --dry-run        shows the schedule and the command
    job.py                  runs it, and goes on from the newest checkpoint when there is one
    job.py -- TRAIN.WARMUP=2000 BACKBONE.NORM=SyncBN

It computes TensorPack's settings from the number of GPUs and hands them to `deeplearning run`, which knows the hosts.
TensorPack trains one image a GPU, states its schedule for a total batch of 8, and scales learning rate and schedule to
the batch by itself; an epoch here is 120,000 images, about the whole of COCO. A start that goes on gets a new log
folder, because TensorPack empties the one that it is given.

TensorPack and TensorFlow 1 are retired: this needs an image that still has them, such as a container of your own. The
README says what to use today.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from schedule import SCHEDULES, JobError, Schedule, count_gpus, make_schedule

WEIGHTS = "pretrained-models/ImageNet-R50-AlignPadding.npz"
ENVIRONMENT = {"HOROVOD_CYCLE_TIME": "0.5", "HOROVOD_FUSION_THRESHOLD": str(64 * 1024 * 1024)}
"""Fewer, larger messages between many ranks; what the network needs is `deeplearning run`'s to know."""
_CHECKPOINT = re.compile(r"model-(\d+)\.index")


@dataclass(frozen=True)
class Start:
    """
    Where training begins.

    Attributes:
        checkpoint: From which it goes on; empty for none.
        step: TensorPack's global step behind it.
        epoch: The first epoch to make, from 1.
    """

    checkpoint: str
    step: int
    epoch: int


def read_history(path: Path) -> list[dict[str, int]]:
    """Return from which step on each start made how many steps an epoch: a cluster may have had another size."""
    return json.loads(path.read_text()) if path.is_file() else []


def find_start(checkpoints: Path, history: Sequence[Mapping[str, int]]) -> Start:
    """
    Find the newest checkpoint of all starts.

    Args:
        checkpoints: Folder of the starts' log folders.
        history: Of the starts.
    """
    found = {}
    for index in checkpoints.glob("from-step-*/model-*.index"):
        match = _CHECKPOINT.fullmatch(index.name)
        if match and any(index.parent.glob(f"{index.stem}.data-*")):
            found[int(match[1])] = index.with_suffix("")
    if not found:
        return Start("", 0, 1)
    step = max(found)
    past = [start for start in history if start["step"] < step]
    if not past:
        raise JobError(f"{checkpoints.parent}/history.json must tell of {found[step]}, got nothing; use --fresh")
    behind = past[-1]["epoch"] - 1 + (step - past[-1]["step"]) // past[-1]["steps_per_epoch"]
    return Start(str(found[step]), step, behind + 1)


def find_data(folder: Path) -> Path:
    """
    Return where COCO is in a folder: directly, or in `data`, as the archive of the CloudFormation template has it.

    Raises:
        JobError: It is not there.
    """
    for place in (folder, folder / "data"):
        if all((place / name).is_dir() for name in ("annotations", "train2017", "val2017")):
            return place
    raise JobError(f"--data must hold annotations, train2017 and val2017, got {folder}; see `deeplearning data`")


def make_command(options: argparse.Namespace, schedule: Schedule, start: Start, logs: Path, data: Path) -> list[str]:
    """
    Return the command that runs the job.

    Args:
        options: The flags.
        schedule: For the cluster's size.
        start: Where training begins.
        logs: TensorPack's log folder.
        data: COCO.
    """
    command = [
        "deeplearning",
        "run",
        "--launcher",
        options.launcher,
        "--name",
        options.name,
        "--np",
        str(schedule.gpus),
    ]
    for name, value in ENVIRONMENT.items():
        command += ["--env", f"{name}={value}"]
    command += ["--fresh"] if options.fresh else []
    command += ["--", "python3", str(options.program), "--logdir", str(logs)]
    command += ["--load", start.checkpoint] if start.checkpoint else []
    settings = {
        "MODE_MASK": "True",
        "MODE_FPN": "True",
        "DATA.BASEDIR": str(data),
        "DATA.TRAIN": '["coco_train2017"]',
        "DATA.VAL": '("coco_val2017",)',
        "TRAIN.EVAL_PERIOD": str(options.eval_period),
        "TRAIN.CHECKPOINT_PERIOD": "1",
        "TRAIN.STEPS_PER_EPOCH": str(schedule.steps_per_epoch),
        "TRAIN.LR_SCHEDULE": str(list(schedule.steps)),
        "TRAIN.STARTING_EPOCH": str(start.epoch),
        "BACKBONE.WEIGHTS": str(options.weights or data / WEIGHTS),
        "BACKBONE.NORM": "FreezeBN",
        "TRAINER": "horovod",
    }
    return [*command, "--config", *(f"{name}={value}" for name, value in settings.items()), *options.settings]


def parse_arguments(words: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Read the flags; what the cluster's contract says is their default."""
    efs = Path(environment.get("EFS_MOUNT", "/efs"))
    data = Path(environment.get("DEEPLEARNING_DATA", "/opt/deeplearning/data"), "coco")
    program = efs / "tensorpack/examples/FasterRCNN/train.py"
    parser = argparse.ArgumentParser(description="Run TensorPack's Mask R-CNN on the cluster.")
    parser.add_argument("--name", default="mask-rcnn", help="of the job (default: %(default)s)")
    parser.add_argument("--launcher", choices=("mpi", "horovod"), default="mpi", help="default: %(default)s")
    parser.add_argument("--program", type=Path, default=program, help="TensorPack's train.py (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=data, help="COCO 2017 (default: %(default)s)")
    parser.add_argument("--weights", type=Path, help=f"of the backbone (default: {WEIGHTS} with the data)")
    parser.add_argument("--schedule", choices=SCHEDULES, default="2x", help="default: %(default)s")
    parser.add_argument("--eval-period", type=int, default=1, help="epochs; 0: never (default: %(default)s)")
    parser.add_argument("--np", type=int, dest="ranks", metavar="N", help="GPUs in all (default: every one)")
    parser.add_argument("--fresh", action="store_true", help="begin anew")
    parser.add_argument("--dry-run", action="store_true", help="only show schedule and command")
    parser.add_argument("settings", nargs="*", metavar="-- NAME=VALUE", help="more of TensorPack's settings; they win")
    options = parser.parse_args(words)
    options.folder = efs / "jobs" / options.name
    return options


def run_job(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """
    Compute, show and run.

    Returns:
        The job's exit status.

    Raises:
        JobError: The job cannot be run.
    """
    hosts, gpus = (read_count(environment, f"DEEPLEARNING_{name}_COUNT") for name in ("WORKERS", "WORKER_GPU"))
    schedule = make_schedule(count_gpus(hosts, gpus, options.ranks), SCHEDULES[options.schedule])
    history = [] if options.fresh else read_history(options.folder / "history.json")
    start = Start("", 0, 1) if options.fresh else find_start(options.folder / "checkpoints", history)
    if start.epoch > schedule.epochs:
        print(f"all {schedule.epochs} epochs are made, see {start.checkpoint}; --fresh begins anew")  # noqa: T201
        return 0
    logs = options.folder / "checkpoints" / f"from-step-{start.step}"
    command = make_command(options, schedule, start, logs, find_data(options.data))
    print(  # noqa: T201 - what the user asked for
        f"{schedule.gpus} GPUs, {schedule.gpus} images a step, {schedule.steps_per_epoch} steps an epoch, "
        f"epochs {start.epoch} to {schedule.epochs}, learning rate drops after {schedule.drops}\n{shlex.join(command)}",
        flush=True,
    )
    if options.dry_run:
        return 0
    entry = {"step": start.step, "epoch": start.epoch, "steps_per_epoch": schedule.steps_per_epoch}
    write_history(options.folder / "history.json", [*(past for past in history if past["step"] < start.step), entry])
    return subprocess.run(command, check=False).returncode


def read_count(environment: Mapping[str, str], name: str) -> int:
    """
    Return a count of the contract; 0 when it is not set.

    Raises:
        JobError: It is no number.
    """
    value = environment.get(name, "").strip() or "0"
    if not value.isdecimal():
        raise JobError(f"{name} must be a number, got {value!r}; run `deeplearning check`")
    return int(value)


def write_history(path: Path, history: Sequence[Mapping[str, int]]) -> None:
    """Write it, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(history, indent=2) + "\n")
    unfinished.replace(path)


def main() -> int:
    """Run the job, or say why not."""
    try:
        return run_job(parse_arguments(sys.argv[1:], os.environ), os.environ)
    except JobError as error:
        sys.stderr.write(f"job.py: {error}\n")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
