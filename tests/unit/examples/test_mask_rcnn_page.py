"""
The Mask R-CNN job along the page for users of the predecessor: its command stages what its program then finds.

The downloads are small files of the real names, served here; the script, staging and job are real, and `deeplearning
run` is a program of the test.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from deeplearning_contract.names import DATA_SETS
from deeplearning_contract.setting_parts import DataSettings
from tests.real_time import GENEROUS_SECONDS
from tests.unit.deeplearning_provision.data_lab import MASTER
from tests.unit.examples.staging_lab import ROOT, SCRIPT, read_sources

PAGE = (ROOT / "docs/from-deeplearning-cfn.md").read_text()
DEEPLEARNING = f"""#!/bin/bash
if [ "$1" = run ]; then printf '%s\\n' "$@" > "$TEST/run"; exit; fi
exec {sys.executable} -c 'import sys; from deeplearning_command.main import main; sys.exit(main(sys.argv[1:]))' "$@"
"""


def read_commands(program):
    """Return the commands of the page's first guide that start with a program, as words."""
    guide = PAGE.partition("\n## Mask R-CNN")[2].partition("\n## ")[0]
    return [shlex.split(text)[1:] for text in re.findall(r"`([^`]+)`", guide) if text.startswith(f"{program} ")]


@pytest.fixture
def staged(staging, data_lab):
    """Carry out the page's command and stage what it prints; return the folder of the data."""
    [words] = [words for words in read_commands("bash") if "mask_rcnn" in words[0]]
    assert ROOT / words[0] == SCRIPT
    done = staging.stage(*(word.replace("BUCKET", "bucket") for word in words[1:]))
    sources = read_sources(done.stdout)
    data_lab.stage(*(DataSettings(one["name"], one["bucket"], one["key"], "efs", one["sha256"]) for one in sources))
    return data_lab.root(MASTER) / "opt/deeplearning/data"


def run_job(staged, folder, *arguments):
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/deeplearning").write_text(DEEPLEARNING)
    (folder / "bin/deeplearning").chmod(0o755)
    environment = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "TEST": str(folder),
        "EFS_MOUNT": str(folder / "efs"),
        "DEEPLEARNING_DATA": str(staged),
        "DEEPLEARNING_WORKERS_COUNT": "2",
        "DEEPLEARNING_WORKER_GPU_COUNT": "8",
    }
    [words] = [words for words in read_commands("python3") if "mask_rcnn/job.py" in words[0]]
    program = ROOT / words[0].removeprefix("E/deeplearning-cdk/")
    command = [sys.executable, program, *words[1:], *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=GENEROUS_SECONDS
    )


@pytest.mark.defect("D77")
def test_the_job_finds_what_the_pages_commands_have_staged(staged, tmp_path):
    answer = run_job(staged, tmp_path)
    assert answer.returncode == 0, answer.stderr
    words = (tmp_path / "run").read_text().splitlines()
    settings = dict(word.split("=", 1) for word in words[words.index("--config") + 1 :])
    base, weights = Path(settings["DATA.BASEDIR"]), Path(settings["BACKBONE.WEIGHTS"])
    assert (base / "annotations/instances_train2017.json").is_file()
    assert (base / "train2017/000000000009.jpg").is_file()
    assert weights.name == "ImageNet-R50-AlignPadding.npz"
    assert weights.is_file()
    assert Path(words[words.index("--") + 2]).is_file()


@pytest.mark.defect("D77")
def test_a_file_that_is_missing_ends_the_job_before_anything_starts(staged, tmp_path):
    for missing in (
        "annotations/instances_train2017.json",
        "annotations/instances_val2017.json",
        "train2017",
        "val2017",
        "pretrained-models/ImageNet-R50-AlignPadding.npz",
    ):
        path = staged / "coco-2017" / missing
        path.rename(tmp_path / "aside")
        answer = run_job(staged, tmp_path)
        assert answer.returncode == 2
        assert f"must contain {missing}, got {staged}/coco-2017 without it" in answer.stderr
        assert "stage_data.sh s3://BUCKET/PREFIX" in answer.stderr
        assert not (tmp_path / "run").exists()
        assert not (tmp_path / "efs/jobs").exists()
        (tmp_path / "aside").rename(path)


def test_a_program_that_is_missing_ends_the_job_before_anything_starts(staged, tmp_path):
    (staged / "tensorpack/tensorpack/examples/FasterRCNN/train.py").unlink()
    answer = run_job(staged, tmp_path)
    assert answer.returncode == 2
    assert f"--program must be TensorPack's train.py, got {staged}/tensorpack/tensorpack/examples" in answer.stderr
    assert "stage_data.sh s3://BUCKET/PREFIX" in answer.stderr
    assert not (tmp_path / "run").exists()


def test_the_script_stages_every_part_that_jobs_find(staged):
    assert [path for path in DATA_SETS["coco-2017"].values() if not (staged / "coco-2017" / path).exists()] == []
