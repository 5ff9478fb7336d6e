"""
The Mask R-CNN job along the page for users of the predecessor: its commands stage what its program then finds.

The downloads are small files of the real names, served here; prepare-data, staging and job are real, and `deeplearning
run` is a program of the test.
"""

import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from deeplearning_cli.data import sources as data_sources
from deeplearning_cli.data.upload import make_client
from deeplearning_cli.main import main
from deeplearning_contract.data_sets import DATA_SETS
from deeplearning_contract.setting_parts import DataSettings
from tests.real_time import GENEROUS_SECONDS
from tests.unit.deeplearning_provision.data_lab import MASTER

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/from-deeplearning-cfn.md").read_text()
ARCHIVES = {
    "train2017.zip": ("train2017/000000000009.jpg",),
    "val2017.zip": ("val2017/000000000139.jpg",),
    "annotations_trainval2017.zip": (
        "annotations/instances_train2017.json",
        "annotations/instances_val2017.json",
        "annotations/captions_val2017.json",
    ),
}
"""Files of COCO's archives, as they are named there."""
DEEPLEARNING = f"""#!/bin/bash
if [ "$1" = run ]; then printf '%s\\n' "$@" > "$TEST/run"; exit; fi
exec {sys.executable} -c 'import sys; from deeplearning_command.main import main; sys.exit(main(sys.argv[1:]))' "$@"
"""


def read_commands(program):
    """Return the commands of the page's first guide that start with a program, as words."""
    guide = PAGE.partition("\n## Mask R-CNN")[2].partition("\n## ")[0]
    return [shlex.split(text)[1:] for text in re.findall(r"`([^`]+)`", guide) if text.startswith(f"{program} ")]


@pytest.fixture
def downloads(web, monkeypatch):
    """Serve each download of the preset from here, small; what COCO publishes of sizes and digests is left out."""
    found = []
    for source in data_sources.PRESETS["coco-2017"]:
        body = io.BytesIO(b"weights")
        if source.name in ARCHIVES:
            with zipfile.ZipFile(body, "w") as archive:
                for name in ARCHIVES[source.name]:
                    archive.writestr(name, "{}")
        web.files[f"/{source.name}"] = body.getvalue()
        found.append(dataclasses.replace(source, url=f"{web.url}/{source.name}", digest="", size=0))
    monkeypatch.setitem(data_sources.PRESETS, "coco-2017", tuple(found))


@pytest.fixture
def tensorpack(tmp_path, monkeypatch):
    """Make the files of a clone of TensorPack that the job names."""
    program = tmp_path / "desk/tensorpack/examples/FasterRCNN/train.py"
    program.parent.mkdir(parents=True)
    program.write_text("")
    monkeypatch.chdir(tmp_path / "desk")


@pytest.fixture
def staged(downloads, tensorpack, data_lab, capsys):
    """Carry out the page's `prepare-data` commands and stage what they print; return the folder of the data."""
    make_client().create_bucket(Bucket="bucket")
    sources = []
    for words in read_commands("deeplearning-cdk"):
        assert main([word.replace("BUCKET", "bucket") for word in words]) == 0
        printed = capsys.readouterr().out
        sources += json.loads(printed.rpartition("-c data='")[2].rpartition("'")[0])
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
    assert weights.read_bytes() == b"weights"
    assert Path(words[words.index("--") + 2]).is_file()


@pytest.mark.defect("D77")
@pytest.mark.parametrize(
    "missing",
    [
        "annotations/instances_train2017.json",
        "annotations/instances_val2017.json",
        "train2017",
        "val2017",
        "pretrained-models/ImageNet-R50-AlignPadding.npz",
    ],
)
def test_a_file_that_is_missing_ends_the_job_before_anything_starts(staged, tmp_path, missing):
    path = staged / "coco-2017" / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    answer = run_job(staged, tmp_path)
    assert answer.returncode == 2
    assert f"must contain {missing}, got {staged}/coco-2017 without it" in answer.stderr
    assert "prepare-data" in answer.stderr
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "efs/jobs").exists()


def test_a_program_that_is_missing_ends_the_job_before_anything_starts(staged, tmp_path):
    (staged / "tensorpack/tensorpack/examples/FasterRCNN/train.py").unlink()
    answer = run_job(staged, tmp_path)
    assert answer.returncode == 2
    assert f"--program must be TensorPack's train.py, got {staged}/tensorpack/tensorpack/examples" in answer.stderr
    assert "prepare-data s3://BUCKET/tensorpack.tar --path tensorpack" in answer.stderr
    assert not (tmp_path / "run").exists()


def test_the_presets_of_prepare_data_are_the_data_sets_that_jobs_ask_for():
    assert set(data_sources.PRESETS) == set(DATA_SETS)
    for name, data_set in DATA_SETS.items():
        named = [f"{source.folder}/{source.name}".lstrip("/") for source in data_sources.PRESETS[name]]
        for path in data_set.parts.values():
            inside = [file for archive, files in ARCHIVES.items() if archive in named for file in files]
            assert any(found == path or found.startswith(f"{path}/") for found in [*named, *inside]), path


def test_data_of_a_preset_is_called_as_the_preset_whatever_its_key(downloads, aws_server, tmp_path, capsys):
    make_client().create_bucket(Bucket="bucket")
    words = ["prepare-data", "s3://bucket/somewhere/all.tar", "--work", str(tmp_path / "work"), "--preset", "coco-2017"]
    assert main(words) == 0
    assert '"name": "coco-2017"' in capsys.readouterr().out
