"""Synthesizes clusters on EMR."""

from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest

from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_contract.settings import NodeSettings
from tests.unit.deeplearning_cdk.conftest import Synthesis, render

CLUSTER = "AWS::EMR::Cluster"


@pytest.fixture(scope="module")
def make(make_app: Callable[..., cdk.App], read_stack: Callable[[cdk.Stack], Synthesis]) -> Callable[..., Synthesis]:
    """Return a function from props to a synthesis; equal plain props are synthesized once."""
    known: dict[str, Synthesis] = {}

    def synthesize(**props: Any) -> Synthesis:
        if repr(props) not in known:
            stack = cdk.Stack(make_app(), "Stack")
            EmrTraining(stack, "Training", **props)
            known[repr(props)] = read_stack(stack)
        return known[repr(props)]

    return synthesize


def read_settings(synthesis: Synthesis) -> NodeSettings:
    """Return the settings that a bootstrap action gets."""
    (action,) = synthesis.only(CLUSTER)["BootstrapActions"]
    return NodeSettings.from_json(render(action["ScriptBootstrapAction"]["Args"][5]))
