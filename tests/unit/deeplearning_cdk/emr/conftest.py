"""Synthesizes clusters on EMR."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_contract.settings import NodeSettings
from tests.unit.deeplearning_cdk.conftest import Synthesis, render

CLUSTER = "AWS::EMR::Cluster"


@pytest.fixture(scope="session")
def make(make_once: Callable[..., Callable[..., Synthesis]]) -> Callable[..., Synthesis]:
    """Return a function from props to a synthesis."""
    return make_once(EmrTraining)


def read_settings(synthesis: Synthesis) -> NodeSettings:
    """Return the settings of the members."""
    return NodeSettings.from_json(json.dumps(read_release(synthesis)["settings"]))


def read_release(synthesis: Synthesis) -> dict[str, Any]:
    """Return the release that a bootstrap action reads."""
    (action,) = synthesis.only(CLUSTER)["BootstrapActions"]
    parameter = synthesis.template["Resources"][action["ScriptBootstrapAction"]["Args"][0]["Ref"]]
    release: dict[str, Any] = json.loads(render(parameter["Properties"]["Value"]))
    return release
