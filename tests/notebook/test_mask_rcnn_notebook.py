"""The notebook of SageMaker is saved without outputs, and runs from top to bottom against a rehearsal."""

import base64
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from cdk_rehearsal.run.lab_record import LabRecord
from deeplearning_cdk.coordination.payload import pack_notebook
from tests.notebook.saved_notebook import find_faults, read_cells
from tests.real_time import GENEROUS_SECONDS
from tests.rehearsal.kept_rehearsal import ROOT, keep_rehearsal

NOTEBOOK = ROOT / "examples/sagemaker/mask_rcnn.ipynb"
EPOCHS = 6
PARAMETERS = f"""
STACK = "deeplearning-cluster"
STAGE_TO = ""
STAGE_FOLDER = ""
JOB = {{
    "name": "digits",
    "program": ["python3", "train_digits.py", "--epochs", "{EPOCHS}"],
    "launcher": "horovod",
    "source": "{ROOT / "examples"}",
    "gpus_per_member": 2,
}}
MODEL_FOLDER = "model"
"""
"""Those of the notebook, with the example that needs neither data nor TensorFlow."""
COMMAND = """#!/bin/sh
PYTHONPATH={programs} exec {python} -m deeplearning_cli.main "$@"
"""
"""As the script of the notebook instance makes it."""


@pytest.fixture(scope="module")
def python():
    """Return the Python with the packages of a notebook instance."""
    subprocess.run(["make", "--no-print-directory", "build/stamps/notebook"], cwd=ROOT, check=True)
    return ROOT / "build/notebook/bin/python"


def unpack_programs(folder, python):
    """Unpack what the instance downloads, and make its command; return the folder of the command."""
    with zipfile.ZipFile(pack_notebook()) as archive:
        archive.extractall(folder)
    command = folder / "bin/deeplearning-cdk"
    command.parent.mkdir()
    command.write_text(COMMAND.format(programs=folder, python=python))
    command.chmod(0o755)
    return command.parent


def execute(record, python, folder):
    """Execute the notebook in the lab's network, with nothing but its own packages; return its cells."""
    commands = unpack_programs(folder, python)
    (folder / "parameters.py").write_text(PARAMETERS)
    notebook = folder / "sagemaker/mask_rcnn.ipynb"
    environment = {
        "AWS_ACCESS_KEY_ID": record.access_key_id,
        "AWS_SECRET_ACCESS_KEY": record.secret_access_key,
        "AWS_DEFAULT_REGION": record.region,
        "AWS_ENDPOINT_URL": record.endpoint,
        "HOME": str(folder),
        "PATH": f"{commands}:{os.environ['PATH']}",
    }
    inside = ["nsenter", f"--net=/proc/{record.pid}/ns/net"]
    program = [str(python), str(Path(__file__).with_name("execute.py")), str(notebook), str(folder / "parameters.py")]
    answer = subprocess.run(
        [*inside, *program], env=environment, check=False, capture_output=True, text=True, timeout=GENEROUS_SECONDS
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return read_cells(notebook)


def read_text(cells, name):
    """Return what a cell printed."""
    (cell,) = [cell for cell in cells if cell["id"] == name]
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


def test_the_notebook_is_saved_without_outputs_and_imports_boto3_and_matplotlib_alone():
    assert list(find_faults(NOTEBOOK)) == []


def test_a_notebook_with_saved_outputs_is_refused(tmp_path):
    document = json.loads(NOTEBOOK.read_text())
    for cell in document["cells"]:
        if cell.get("id") == "imports":
            cell["source"].insert(0, "import sagemaker.estimator\n")
        if cell.get("id") == "loss":
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": ["0.7\n"]}]
        if cell.get("id") == "model":
            cell["execution_count"] = 3
    (tmp_path / "saved.ipynb").write_text(json.dumps(document))
    assert list(find_faults(tmp_path / "saved.ipynb")) == [
        "imports must import boto3, matplotlib alone, got sagemaker",
        "loss must be saved without outputs and numbers",
        "model must be saved without outputs and numbers",
    ]


@pytest.mark.usefixtures("_root")
def test_the_notebook_trains_draws_a_falling_loss_and_fetches_the_model(python, tmp_path):
    with keep_rehearsal("sagemaker", tmp_path, ["platform=sagemaker", "members=2"]) as kept:
        cells = execute(LabRecord.read(kept.out), python, tmp_path / "instance")
        job = kept.find_job("digits")
    assert (job["state"], job["members"]) == ("succeeded", 2)
    losses = json.loads(read_text(cells, "loss").splitlines()[0])
    assert losses["lines"] == EPOCHS
    assert losses["last"] < losses["first"]
    (curve,) = [cell for cell in cells if cell["id"] == "loss"]
    (picture,) = [output["data"]["image/png"] for output in curve["outputs"] if "image/png" in output.get("data", {})]
    assert base64.b64decode("".join(picture)).startswith(b"\x89PNG")
    newest = f"epochs-{EPOCHS:05d}.pt"
    assert newest in read_text(cells, "model").split()
    assert (tmp_path / "instance/sagemaker/model" / newest).stat().st_size > 0
    assert "has ended: succeeded" in read_text(cells, "stop")
