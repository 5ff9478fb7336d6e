"""Synthesizes stacks with training jobs on SageMaker."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deeplearning_cdk import SageMakerTraining
from deeplearning_contract.jobs.submission import TrainingSettings
from deeplearning_contract.jobs.training_job import get_training
from deeplearning_contract.settings import NodeSettings
from tests.unit.deeplearning_cdk.conftest import Synthesis, read_submission


@pytest.fixture(scope="session")
def make(make_once: Callable[..., Callable[..., Synthesis]]) -> Callable[..., Synthesis]:
    """Return a function from props to a synthesis."""
    return make_once(SageMakerTraining)


def read_training(synthesis: Synthesis) -> TrainingSettings:
    """Return the settings of training jobs in the submission document."""
    return get_training(read_submission(synthesis))


def read_member(folder: Path) -> NodeSettings:
    """Return the settings in the zip of the containers' programs, in the folder of an assembly."""
    (packed,) = (
        archive.read("settings.json").decode()
        for path in folder.glob("asset.*.zip")
        if "settings.json" in (archive := zipfile.ZipFile(io.BytesIO(path.read_bytes()))).namelist()
    )
    assert "Token[" not in packed
    assert json.loads(packed)
    return NodeSettings.from_json(packed)
