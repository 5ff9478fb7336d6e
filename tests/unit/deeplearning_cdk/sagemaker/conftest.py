"""Synthesizes stacks with training jobs on SageMaker."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from deeplearning_cdk import SageMakerTraining
from deeplearning_contract.jobs.submission import SubmissionSettings, TrainingSettings
from deeplearning_contract.jobs.training_job import get_training
from deeplearning_contract.settings import NodeSettings
from tests.unit.deeplearning_cdk.conftest import Synthesis, render


@pytest.fixture(scope="module")
def make(make_app: Callable[..., cdk.App], read_stack: Callable[[cdk.Stack], Synthesis]) -> Callable[..., Synthesis]:
    """Return a function from props to a synthesis; equal plain props are synthesized once."""
    known: dict[str, Synthesis] = {}

    def synthesize(**props: Any) -> Synthesis:
        if repr(props) not in known:
            stack = cdk.Stack(make_app(), "Stack")
            SageMakerTraining(stack, "Training", **props)
            known[repr(props)] = read_stack(stack)
        return known[repr(props)]

    return synthesize


def read_submission(synthesis: Synthesis) -> SubmissionSettings:
    """Return the submission document, with `<LogicalId>` for what is known at deployment only."""
    parameter = synthesis.part("AWS::SSM::Parameter", "Submission")["Properties"]
    return SubmissionSettings.from_json(render(parameter["Value"]))


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
