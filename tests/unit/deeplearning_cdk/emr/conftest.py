"""Synthesizes clusters on EMR."""

import json
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
    """Return the settings of the members."""
    return NodeSettings.from_json(json.dumps(read_release(synthesis)["settings"]))


def read_release(synthesis: Synthesis) -> dict[str, Any]:
    """Return the release that a bootstrap action reads."""
    (action,) = synthesis.only(CLUSTER)["BootstrapActions"]
    parameter = synthesis.template["Resources"][action["ScriptBootstrapAction"]["Args"][0]["Ref"]]
    release: dict[str, Any] = json.loads(render(parameter["Properties"]["Value"]))
    return release
