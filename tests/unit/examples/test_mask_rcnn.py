"""The Mask R-CNN job: its schedule for every size of a cluster, and how it goes on, with a program of the test."""

import importlib.util
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from deeplearning_command.main import make_parser
from deeplearning_contract.names import DATA_SETS
from tests.real_time import GENEROUS_SECONDS

FOLDER = Path(__file__).parents[3] / "examples" / "mask_rcnn"
DEEPLEARNING = f"""#!/bin/bash
[ "$1" = run ] || exec {sys.executable} -c '
import sys
from deeplearning_command.main import main
sys.exit(main(sys.argv[1:]))' "$@"
printf '%s\\n' "$@" > "$TEST/run"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
# Does what TensorPack does: empties its log folder, and leaves a checkpoint an epoch, numbered by all steps so far.
TRAIN = """
import argparse, os, pathlib, shutil
parser = argparse.ArgumentParser()
parser.add_argument("--logdir", type=pathlib.Path)
parser.add_argument("--load", default="model-0")
parser.add_argument("--config", nargs="+")
options = parser.parse_args()
settings = dict(setting.split("=", 1) for setting in options.config)
shutil.rmtree(options.logdir, ignore_errors=True)
options.logdir.mkdir(parents=True)
step = int(options.load.rpartition("-")[2])
for epoch in range(int(os.environ.get("EPOCHS", "2"))):
    step += int(settings["TRAIN.STEPS_PER_EPOCH"])
    for end in ("index", "data-00000-of-00001"):
        (options.logdir / f"model-{step}.{end}").write_text("")
"""


@pytest.fixture
def schedule():
    """The module `schedule`."""
    spec = importlib.util.spec_from_file_location("mask_rcnn_schedule", FOLDER / "schedule.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Cluster:
    """A master with a file system, data and TensorPack's program."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        self.data = folder / "data" / "coco-2017"
        for path in DATA_SETS["coco-2017"].values():
            (self.data / path).parent.mkdir(parents=True, exist_ok=True)
            (self.data / path).write_text("") if Path(path).suffix else (self.data / path).mkdir()
        (folder / "bin" / "deeplearning").write_text(DEEPLEARNING)
        (folder / "bin" / "deeplearning").chmod(0o755)
        (folder / "train.py").write_text(TRAIN)
        self.checkpoints = folder / "efs" / "jobs" / "mask-rcnn" / "checkpoints"

    @property
    def environment(self):
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "TEST": str(self.folder),
            "EFS_MOUNT": str(self.folder / "efs"),
            "DEEPLEARNING_DATA": str(self.folder / "data"),
            "DEEPLEARNING_WORKERS_COUNT": "2",
            "DEEPLEARNING_WORKER_GPU_COUNT": "8",
        }

    def run(self, *arguments, **variables):
        command = [sys.executable, FOLDER / "job.py", "--program", self.folder / "train.py", *arguments]
        return subprocess.run(
            command,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=GENEROUS_SECONDS,
        )

    def settings(self):
        words = (self.folder / "run").read_text().splitlines()
        return dict(word.split("=", 1) for word in words[words.index("--config") + 1 :])

    def words(self):
        return (self.folder / "run").read_text().splitlines()


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


@pytest.mark.defect("D69", "D70")
@pytest.mark.parametrize("gpus", [1, 4, 8])
@pytest.mark.parametrize("hosts", range(1, 33))
def test_every_size_gets_the_same_24_epochs_or_is_refused_with_the_nearest_sizes(schedule, hosts, gpus):
    total = hosts * gpus
    if total % 8 == 0 or 8 % total == 0:
        plan = schedule.make_schedule(schedule.count_gpus(hosts, gpus, None), schedule.SCHEDULES["2x"])
        assert (plan.gpus, plan.epochs, plan.drops) == (total, 24, (16, 21))
        assert plan.steps_per_epoch == 120_000 // total
        return
    with pytest.raises(schedule.JobError) as refusal:
        schedule.count_gpus(hosts, gpus, None)
    proposed = [int(word) for word in str(refusal.value).partition("use ")[2].split() if word.isdecimal()]
    assert proposed
    assert [schedule.count_gpus(hosts, gpus, number) for number in proposed] == proposed


@pytest.mark.parametrize(
    ("asked", "nearest"), [(9, "use --np 8 or --np 16"), (12, "use --np 8 or --np 16"), (0, "use --np 1")]
)
def test_a_number_of_gpus_that_tensorpack_does_not_take_is_refused(schedule, asked, nearest):
    with pytest.raises(schedule.JobError, match=nearest):
        schedule.count_gpus(4, 8, asked)


def test_gpus_of_a_part_of_a_host_beside_whole_hosts_are_refused(schedule):
    with pytest.raises(schedule.JobError, match="use --np 16 or --np 32"):
        schedule.count_gpus(2, 16, 24)


@pytest.mark.parametrize("name", ["1x", "2x"])
def test_training_uses_as_many_images_as_the_schedule(schedule, name):
    steps = schedule.SCHEDULES[name]
    for gpus in (1, 2, 4, 8, 24, 64, 256):
        plan = schedule.make_schedule(gpus, steps)
        images = plan.epochs * plan.steps_per_epoch * plan.gpus
        assert images == pytest.approx(steps[-1] * 8, rel=0.01)


def test_data_of_another_size_gets_as_many_epochs(schedule):
    for images in (64, 4096, 1_000_000):
        plan = schedule.make_schedule(2, schedule.SCHEDULES["1x"], images)
        assert (plan.epochs, plan.drops, plan.steps_per_epoch) == (12, (8, 10), images // 2)


@pytest.mark.defect("D72", "D77")
def test_the_command_has_the_flags_for_the_size_and_no_path_of_one_user_or_image(cluster):
    answer = cluster.run("--", "TRAIN.WARMUP=2000")
    assert answer.returncode == 0, answer.stderr
    words = cluster.words()
    assert words[:6] == ["run", "--launcher", "horovod", "--name", "mask-rcnn", "--np"]
    assert words[6] == "16"
    settings = cluster.settings()
    assert settings["TRAIN.STEPS_PER_EPOCH"] == "7500"
    assert settings["TRAIN.LR_SCHEDULE"] == "[240000, 320000, 360000]"
    assert settings["TRAIN.STARTING_EPOCH"] == "1"
    assert settings["DATA.BASEDIR"] == str(cluster.data)
    assert settings["TRAIN.WARMUP"] == "2000"
    assert settings["TRAINER"] == "horovod"
    assert not [word for word in words if "ubuntu" in word or "anaconda" in word or "NCCL" in word]
    assert "--load" not in words
    assert "epochs 1 to 24" in answer.stdout


@pytest.mark.defect("D73")
def test_a_second_start_goes_on_from_the_newest_checkpoint_and_keeps_it(cluster):
    cluster.run()
    assert cluster.run().returncode == 0
    words = cluster.words()
    first = cluster.checkpoints / "from-step-0" / "model-15000"
    assert words[words.index("--load") + 1] == str(first)
    assert cluster.settings()["TRAIN.STARTING_EPOCH"] == "3"
    assert first.with_suffix(".index").exists()
    assert (cluster.checkpoints / "from-step-15000" / "model-30000.index").exists()


@pytest.mark.defect("D73")
def test_a_start_on_a_cluster_of_another_size_goes_on_with_the_right_epoch(cluster):
    cluster.run()
    cluster.run(DEEPLEARNING_WORKERS_COUNT="1")
    assert cluster.settings()["TRAIN.STARTING_EPOCH"] == "3"
    assert cluster.settings()["TRAIN.STEPS_PER_EPOCH"] == "15000"
    cluster.run()
    assert cluster.settings()["TRAIN.STARTING_EPOCH"] == "5"


def test_a_job_does_not_resume_from_a_checkpoint_without_its_data(cluster):
    cluster.run()
    for part in (cluster.checkpoints / "from-step-0").glob("model-15000.data-*"):
        part.unlink()
    cluster.run()
    words = cluster.words()
    assert words[words.index("--load") + 1].endswith("from-step-0/model-7500")
    assert cluster.settings()["TRAIN.STARTING_EPOCH"] == "2"


def test_a_finished_job_prints_that_and_runs_nothing(cluster):
    assert cluster.run(EPOCHS="22").returncode == 0
    assert cluster.run().returncode == 0
    assert cluster.settings()["TRAIN.STARTING_EPOCH"] == "23"
    (cluster.folder / "run").unlink()
    answer = cluster.run()
    assert answer.returncode == 0
    assert "all 24 epochs are complete" in answer.stdout
    assert not (cluster.folder / "run").exists()


def test_fresh_begins_anew(cluster):
    cluster.run()
    cluster.run("--fresh")
    assert "--load" not in cluster.words()
    assert "--fresh" in cluster.words()
    assert [entry["step"] for entry in json.loads((cluster.checkpoints.parent / "history.json").read_text())] == [0]


def test_a_dry_run_shows_the_command_and_changes_nothing(cluster):
    answer = cluster.run("--dry-run")
    assert "deeplearning run --launcher horovod" in answer.stdout
    assert not (cluster.folder / "efs").exists()


@pytest.mark.defect("D70")
@pytest.mark.parametrize("count", ["", "0"])
def test_no_gpus_is_an_error_and_not_a_guess(cluster, count):
    answer = cluster.run(DEEPLEARNING_WORKER_GPU_COUNT=count)
    assert answer.returncode == 2
    assert "DEEPLEARNING_WORKER_GPU_COUNT must be at least 1, got 0" in answer.stderr
    assert not (cluster.folder / "run").exists()


@pytest.mark.defect("D69")
def test_an_odd_number_of_hosts_that_does_not_fit_ends_before_anything_runs(cluster):
    answer = cluster.run(DEEPLEARNING_WORKERS_COUNT="3", DEEPLEARNING_WORKER_GPU_COUNT="4")
    assert answer.returncode == 2
    assert "got 12; use --np 8" in answer.stderr
    assert not (cluster.folder / "run").exists()


def test_the_command_in_a_container_is_one_that_run_takes(cluster):
    """Open MPI's ranks do not run in containers, and no image of today has TensorFlow 1."""
    assert cluster.run("--container", "tensorpack:1").returncode == 0
    options = make_parser().parse_args(cluster.words())
    assert (options.launcher, options.container) == ("horovod", "tensorpack:1")


def test_weights_of_ones_own_need_none_with_the_data(cluster):
    (cluster.data / "pretrained-models/ImageNet-R50-AlignPadding.npz").unlink()
    own = cluster.folder / "own.npz"
    answer = cluster.run("--weights", own)
    assert answer.returncode == 2
    assert f"--weights must be a file, got {own}" in answer.stderr
    own.write_text("")
    assert cluster.run("--weights", own).returncode == 0
    assert cluster.settings()["BACKBONE.WEIGHTS"] == str(own)


def test_data_of_the_predecessors_archive_lies_a_folder_deeper(cluster):
    deeper = cluster.folder / "old" / "data"
    deeper.parent.mkdir()
    cluster.data.rename(deeper)
    assert cluster.run("--data", deeper.parent).returncode == 0
    assert cluster.settings()["DATA.BASEDIR"] == str(deeper)


def test_without_the_command_of_a_node_the_place_is_named(cluster):
    (cluster.folder / "bin" / "deeplearning").unlink()
    answer = cluster.run(PATH="/usr/bin:/bin")
    assert answer.returncode == 2
    assert "this must run on a node of the cluster" in answer.stderr


@pytest.fixture
def rank(cluster, tmp_path):
    """A function that unpacks the staged archives as a rank does, and returns its command."""
    staged = tmp_path / "data" / "staged"
    staged.mkdir()
    program = tmp_path / "tensorpack" / "examples" / "FasterRCNN" / "train.py"
    program.parent.mkdir(parents=True)
    program.write_text(TRAIN)
    for name, folder in {"coco-2017": cluster.data, "tensorpack": tmp_path / "tensorpack"}.items():
        with tarfile.open(staged / f"{name}.tar", "w") as archive:
            archive.add(folder, "." if name == "coco-2017" else name)

    def run(**variables):
        code = "import json, pathlib, rank, sys; f = [pathlib.Path(w) for w in sys.argv[1:]]; rank.unpack(*f); "
        code += "print(json.dumps(rank.make_command(['--schedule', '1x'], f[1])))"
        environment = cluster.environment | variables | {"PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", code, staged, tmp_path / "unpacked"]
        return subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=False)

    return run


def test_a_rank_of_a_submitted_job_unpacks_the_staged_archives_and_becomes_tensorpacks_program(rank, tmp_path):
    answer = rank(HOROVOD_RANK="0")
    command = json.loads(answer.stdout)
    unpacked = tmp_path / "unpacked"
    assert command[:2] == ["python3", str(unpacked / "tensorpack/tensorpack/examples/FasterRCNN/train.py")]
    assert f"DATA.BASEDIR={unpacked / 'coco-2017'}" in command
    assert "TRAINER=horovod" in command
    history = json.loads((tmp_path / "efs/jobs/mask-rcnn/history.json").read_text())
    assert history == [{"step": 0, "epoch": 1, "steps_per_epoch": 7500}]
    # The other ranks find the files, and the same start.
    assert json.loads(rank(HOROVOD_RANK="1").stdout) == command


def test_a_rank_without_the_staged_archives_says_how_to_stage_them(rank, tmp_path):
    (tmp_path / "data/staged/tensorpack.tar").unlink()
    assert "must contain tensorpack.tar, got none; stage it: examples/mask_rcnn/stage_data.sh" in rank().stderr
