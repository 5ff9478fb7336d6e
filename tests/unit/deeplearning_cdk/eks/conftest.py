"""Synthesizes stacks with clusters on EKS."""

from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest

from deeplearning_cdk import EksTraining
from deeplearning_contract.jobs.submission import KubernetesSettings, SubmissionSettings
from tests.unit.deeplearning_cdk.conftest import Synthesis, render

ADMIN = "arn:aws:iam::111122223333:role/Admin"
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/team/train:1"


@pytest.fixture(scope="module")
def make(make_app: Callable[..., cdk.App], read_stack: Callable[[cdk.Stack], Synthesis]) -> Callable[..., Synthesis]:
    """Return a function from props to a synthesis; equal plain props are synthesized once."""
    known: dict[str, Synthesis] = {}

    def synthesize(**props: Any) -> Synthesis:
        if repr(props) not in known:
            stack = cdk.Stack(make_app(), "Stack")
            EksTraining(stack, "Training", **{"image": IMAGE, "administrators": [ADMIN], **props})
            known[repr(props)] = read_stack(stack)
        return known[repr(props)]

    return synthesize


def read_submission(synthesis: Synthesis) -> SubmissionSettings:
    """Return the submission document, with `<LogicalId>` for what is known at deployment only."""
    parameter = synthesis.part("AWS::SSM::Parameter", "Submission")["Properties"]
    return SubmissionSettings.from_json(render(parameter["Value"]))


def read_kubernetes(synthesis: Synthesis) -> KubernetesSettings:
    """Return the settings of jobs on EKS in the submission document."""
    found = read_submission(synthesis).kubernetes
    assert found is not None
    return found
