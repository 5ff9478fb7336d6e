#!/usr/bin/env python3
"""
TensorPack's Mask R-CNN on COCO 2017 on the whole cluster, with a schedule for the cluster's size.

    job.py --dry-run        shows the schedule and the command
    job.py                  runs it, and resumes from the newest checkpoint if there is one
    job.py -- TRAIN.WARMUP=2000 BACKBONE.NORM=SyncBN

It computes TensorPack's settings from the number of GPUs and passes them to `deeplearning run`, which has the list of
hosts. TensorPack trains one image per GPU, defines its schedule for a total batch of 8, and scales learning rate and
schedule to the batch by itself; an epoch here is 120,000 images, about the whole of COCO. A resumed run gets a new log
folder, because TensorPack empties its log folder.

Data, weights and program must exist before the start; stage_data.sh stages them, as the error for a missing one says.
TensorPack and TensorFlow 1 are retired: they run in your own container (--container, or the cluster's environment). For
current alternatives see the README.
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
from typing import Any

from schedule import IMAGES_PER_EPOCH, SCHEDULES, JobError, Schedule, count_gpus, make_schedule

PRESET = "coco-2017"
"""Name of the data that `stage_data.sh` stages, in the cluster's props and for `deeplearning data --preset`."""
PROGRAM = "tensorpack/tensorpack/examples/FasterRCNN/train.py"
"""Path below the cluster's data."""
STAGE = "stage it: examples/mask_rcnn/stage_data.sh s3://BUCKET/PREFIX"
ENVIRONMENT = {"HOROVOD_CYCLE_TIME": "0.5", "HOROVOD_FUSION_THRESHOLD": str(64 * 1024 * 1024)}
"""Fewer, larger messages between many ranks; `deeplearning run` sets the variables of the network."""
_CHECKPOINT = re.compile(r"model-(\d+)\.index")


@dataclass(frozen=True)
class Start:
    """
    Start of the training.

    Attributes:
        checkpoint: Checkpoint from which it resumes; empty for none.
        step: TensorPack's global step of the checkpoint.
        epoch: First epoch to train, from 1.
    """

    checkpoint: str
    step: int
    epoch: int


def read_history(path: Path) -> list[dict[str, int]]:
    """Return the steps per epoch of each start by its first step, since the cluster's size may have changed."""
    return json.loads(path.read_text()) if path.is_file() else []


def find_start(checkpoints: Path, history: Sequence[Mapping[str, int]]) -> Start:
    """
    Find the newest checkpoint of all starts.

    Args:
        checkpoints: Folder of the starts' log folders.
        history: History of the starts.
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
        raise JobError(f"{checkpoints.parent}/history.json must contain {found[step]}, got nothing; use --fresh")
    behind = past[-1]["epoch"] - 1 + (step - past[-1]["step"]) // past[-1]["steps_per_epoch"]
    return Start(str(found[step]), step, behind + 1)


@dataclass(frozen=True)
class Data:
    """Input of the training.

    Attributes:
        folder: COCO.
        weights: Weights of the backbone."""

    folder: str
    weights: str


def find_data(folder: Path, weights: Path | None) -> Data:
    """
    Find COCO and the backbone's weights.

    Args:
        folder: Folder of COCO, directly or in `data`, as in the archive of the CloudFormation template.
        weights: The user's weights; None for those of the data set.

    Raises:
        JobError: Data or weights are missing.
    """
    found = look_at_data(folder)
    parts = dict(found["parts"])
    needed = [part for part in ("train", "val", "train annotations", "val annotations") if part in found["missing"]]
    if weights is None and "backbone" in found["missing"]:
        needed.append("backbone")
    if needed:
        names = ", ".join(str(Path(parts[part]).relative_to(found["folder"])) for part in needed)
        raise JobError(
            f"--data must contain {names}, got {found['folder']} without it; see `deeplearning data`, or {STAGE}"
        )
    if weights is not None and not weights.is_file():
        raise JobError(f"--weights must be a file, got {weights}; leave it out for the weights of {PRESET}")
    return Data(found["folder"], str(weights or parts["backbone"]))


def look_at_data(folder: Path) -> dict[str, Any]:
    """
    Return the paths of the data set's parts, by their names in `deeplearning data --preset`.

    Raises:
        JobError: The paths cannot be determined.
    """
    command = ["deeplearning", "data", "--preset", PRESET, "--at", str(folder)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise JobError(f"this must run on a node of the cluster, got no `deeplearning`: {error}") from error
    if not answer.stdout:
        raise JobError(f"`{shlex.join(command)}` must work, got: {answer.stderr.strip()}; update the nodes")
    return json.loads(answer.stdout)


def check_program(program: Path) -> None:
    """
    Check that TensorPack's program exists.

    Raises:
        JobError: It does not exist.
    """
    if not program.is_file():
        raise JobError(f"--program must be TensorPack's train.py, got {program} and no such file; {STAGE}")


def make_command(options: argparse.Namespace, schedule: Schedule, start: Start, logs: Path, data: Data) -> list[str]:
    """
    Return the command that runs the job.

    Args:
        options: The flags.
        schedule: Schedule for the cluster's size.
        start: Start of the training.
        logs: TensorPack's log folder.
        data: Input of the training.
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
    command += ["--container", options.container] if options.container else []
    command += ["--fresh"] if options.fresh else []
    command += ["--", "python3", str(options.program), "--logdir", str(logs)]
    command += ["--load", start.checkpoint] if start.checkpoint else []
    settings = {
        "MODE_MASK": "True",
        "MODE_FPN": "True",
        "DATA.BASEDIR": data.folder,
        "DATA.TRAIN": '["coco_train2017"]',
        "DATA.VAL": '("coco_val2017",)',
        "TRAIN.EVAL_PERIOD": str(options.eval_period),
        "TRAIN.CHECKPOINT_PERIOD": "1",
        "TRAIN.STEPS_PER_EPOCH": str(schedule.steps_per_epoch),
        "TRAIN.LR_SCHEDULE": str(list(schedule.steps)),
        "TRAIN.STARTING_EPOCH": str(start.epoch),
        "BACKBONE.WEIGHTS": data.weights,
        "BACKBONE.NORM": "FreezeBN",
        "TRAINER": "horovod",
    }
    return [*command, "--config", *(f"{name}={value}" for name, value in settings.items()), *options.settings]


def parse_arguments(words: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Parse the flags, with defaults from the cluster's contract."""
    efs = Path(environment.get("EFS_MOUNT", "/efs"))
    data = Path(environment.get("DEEPLEARNING_DATA", "/opt/deeplearning/data"), PRESET)
    program = data.parent / PROGRAM
    parser = argparse.ArgumentParser(description="Run TensorPack's Mask R-CNN on the cluster.")
    parser.add_argument("--name", default="mask-rcnn", help="name of the job (default: %(default)s)")
    parser.add_argument("--launcher", choices=("horovod", "mpi"), default="horovod", help="default: %(default)s")
    parser.add_argument("--container", metavar="IMAGE", help="image of the ranks (default: the cluster's, if any)")
    parser.add_argument("--program", type=Path, default=program, help="TensorPack's train.py (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=data, help="COCO 2017 (default: %(default)s)")
    parser.add_argument("--weights", type=Path, help="weights of the backbone (default: those with the data)")
    parser.add_argument("--schedule", choices=SCHEDULES, default="2x", help="default: %(default)s")
    parser.add_argument(
        "--images",
        type=int,
        default=IMAGES_PER_EPOCH,
        help="images per epoch (default: %(default)s)",
    )
    parser.add_argument("--eval-period", type=int, default=1, help="epochs; 0: never (default: %(default)s)")
    parser.add_argument("--np", type=int, dest="ranks", metavar="N", help="total number of GPUs (default: all)")
    parser.add_argument("--fresh", action="store_true", help="begin anew")
    parser.add_argument("--dry-run", action="store_true", help="show schedule and command only")
    parser.add_argument(
        "settings", nargs="*", metavar="-- NAME=VALUE", help="settings of TensorPack, which take precedence"
    )
    options = parser.parse_args(words)
    options.folder = efs / "jobs" / options.name
    return options


def run_job(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """
    Compute, show and run the job.

    Returns:
        The job's exit status.

    Raises:
        JobError: The job cannot be run.
    """
    hosts, gpus = (read_count(environment, f"DEEPLEARNING_{name}_COUNT") for name in ("WORKERS", "WORKER_GPU"))
    schedule = make_schedule(count_gpus(hosts, gpus, options.ranks), SCHEDULES[options.schedule], options.images)
    history = [] if options.fresh else read_history(options.folder / "history.json")
    start = Start("", 0, 1) if options.fresh else find_start(options.folder / "checkpoints", history)
    if start.epoch > schedule.epochs:
        print(f"all {schedule.epochs} epochs are complete, see {start.checkpoint}; --fresh begins anew")  # noqa: T201
        return 0
    logs = options.folder / "checkpoints" / f"from-step-{start.step}"
    command = make_command(options, schedule, start, logs, find_data(options.data, options.weights))
    check_program(options.program)
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
        JobError: It is not a number.
    """
    value = environment.get(name, "").strip() or "0"
    if not value.isdecimal():
        raise JobError(f"{name} must be a number, got {value!r}; run `deeplearning check`")
    return int(value)


def write_history(path: Path, history: Sequence[Mapping[str, int]]) -> None:
    """Write the history atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(history, indent=2) + "\n")
    unfinished.replace(path)


def main() -> int:
    """Run the job, or print the error."""
    try:
        return run_job(parse_arguments(sys.argv[1:], os.environ), os.environ)
    except JobError as error:
        sys.stderr.write(f"job.py: {error}\n")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
