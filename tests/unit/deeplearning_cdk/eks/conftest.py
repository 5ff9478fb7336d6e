"""Synthesizes stacks with clusters on EKS."""

from collections.abc import Callable

import pytest

from deeplearning_cdk import EksTraining
from deeplearning_contract.jobs.submission import KubernetesSettings
from tests.unit.deeplearning_cdk.conftest import Synthesis, read_submission

ADMIN = "arn:aws:iam::111122223333:role/Admin"
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/team/train:1"


@pytest.fixture(scope="session")
def make(make_once: Callable[..., Callable[..., Synthesis]]) -> Callable[..., Synthesis]:
    """Return a function from props to a synthesis."""
    return make_once(EksTraining, image=IMAGE, administrators=[ADMIN])


def read_kubernetes(synthesis: Synthesis) -> KubernetesSettings:
    """Return the settings of jobs on EKS in the submission document."""
    found = read_submission(synthesis).kubernetes
    assert found is not None
    return found
