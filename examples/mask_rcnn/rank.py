#!/usr/bin/env python3
"""
One rank of TensorPack's Mask R-CNN in a job of `deeplearning-cdk submit`, whose launcher starts the ranks.

    rank.py [flags of job.py]

SageMaker unpacks no archives: the first rank of a host unpacks those that stage_data.sh left in the data source
`staged`. Each rank then becomes TensorPack's program with the settings that job.py computes.
"""

import fcntl
import os
import shutil
import sys
import tarfile
from pathlib import Path

import job
from schedule import SCHEDULES, JobError, count_gpus, make_schedule

ARCHIVES = (job.PRESET, "tensorpack")
UNPACKED = Path("/tmp/mask-rcnn")  # noqa: S108 - on the volume of the instance


def unpack(staged: Path, target: Path) -> None:
    """Unpack the staged archives, each into a folder of its name; ranks of a host wait for the one that does."""
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in ARCHIVES:
            unfinished = target / f".{name}"
            if (target / name).exists():
                continue
            if not (staged / f"{name}.tar").is_file():
                raise JobError(f"{staged} must contain {name}.tar, got none; {job.STAGE}, and name the source `staged`")
            shutil.rmtree(unfinished, ignore_errors=True)
            with tarfile.open(staged / f"{name}.tar") as archive:
                archive.extractall(unfinished, filter="data")
            unfinished.rename(target / name)


def make_command(words: list[str], target: Path) -> list[str]:
    """Return TensorPack's command of this rank; the first rank notes the start, as job.py does."""
    options = job.parse_arguments(words, {**os.environ, "DEEPLEARNING_DATA": str(target)})
    hosts, gpus = (job.read_count(os.environ, f"DEEPLEARNING_{name}_COUNT") for name in ("WORKERS", "WORKER_GPU"))
    schedule = make_schedule(count_gpus(hosts, gpus, options.ranks), SCHEDULES[options.schedule], options.images)
    history = job.read_history(options.folder / "history.json")
    start = job.find_start(options.folder / "checkpoints", history)
    logs = options.folder / "checkpoints" / f"from-step-{start.step}"
    command = job.make_command(options, schedule, start, logs, job.find_data(options.data, options.weights))
    job.check_program(options.program)
    if os.environ.get("HOROVOD_RANK") == "0":
        entry = {"step": start.step, "epoch": start.epoch, "steps_per_epoch": schedule.steps_per_epoch}
        past = [each for each in history if each["step"] < start.step]
        job.write_history(options.folder / "history.json", [*past, entry])
    return command[command.index("--") + 1 :]


def main() -> int:
    """Become TensorPack's program, or print the error."""
    try:
        unpack(Path(os.environ.get("DEEPLEARNING_DATA", "/opt/deeplearning/data"), "staged"), UNPACKED)
        command = make_command(sys.argv[1:], UNPACKED)
    except JobError as error:
        sys.stderr.write(f"rank.py: {error}\n")
        return 2
    return os.execvpe(command[0], command, {**os.environ, **job.ENVIRONMENT})  # noqa: S606 - the rank is this process


if __name__ == "__main__":
    raise SystemExit(main())
