"""What holds for every preset that the gates look at."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.foreign_dependencies import find_foreign_dependencies
from tests.gates.presets import PRESETS

GOLDEN = Path(__file__).parents[1] / "unit/deeplearning_cdk/logical_ids.json"


@pytest.mark.parametrize("preset", PRESETS)
def test_every_dependency_names_a_resource_of_its_template(synthesize: Any, preset: str) -> None:
    for template in synthesize(PRESETS[preset]).values():
        assert find_foreign_dependencies(template) == []


def test_a_dependency_on_what_is_not_there_would_be_seen() -> None:
    resources = {"A": {"DependsOn": "B"}, "B": {"DependsOn": ["A", "C"]}}
    assert find_foreign_dependencies({"Resources": resources}) == ["B -> C"]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_resource_of_a_cluster_has_a_guarded_logical_id(synthesize: Any, preset: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    guarded = {name for resources in golden.values() for name in resources}
    (template,) = synthesize(PRESETS[preset]).values()
    assert {name for name in template["Resources"] if name.startswith("Cluster")} <= guarded
