"""Outcome of a training job in a container: what SageMaker shows of a failure, and the model."""

import shutil
from pathlib import Path

from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.training_job import FAILURE_FILE, MODEL_FOLDER
from deeplearning_jobs.plan.checkpoints import find_newest
from deeplearning_member.job_process import open_job
from deeplearning_node.atomic_file import write_file
from deeplearning_node.node import Node

MOST_CHARACTERS = 1024
"""SageMaker shows the first 1,024 characters (developer guide, "How SageMaker AI Processes Training Output")."""


def write_failure(root: Path, reason: str) -> None:
    """Write the reason of a failure where SageMaker reads it."""
    write_file(root / FAILURE_FILE.lstrip("/"), reason[:MOST_CHARACTERS] + "\n")


def publish_model(node: Node, job: JobDefinition) -> None:
    """
    Copy the newest checkpoint to the folder from which SageMaker packs the model, unless the program wrote one itself.

    SageMaker packs the folders of all containers into one archive, so the others leave theirs empty.
    """
    model = node.path(MODEL_FOLDER)
    model.mkdir(parents=True, exist_ok=True)
    newest = find_newest(open_job(node, job).checkpoints, job.checkpoint_pattern)
    if not newest or any(model.iterdir()):
        return
    source = Path(newest)
    if source.is_dir():
        shutil.copytree(source, model / source.name, symlinks=True)
    else:
        shutil.copy2(source, model / source.name)
