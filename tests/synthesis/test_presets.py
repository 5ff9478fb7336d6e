"""Properties that every preset of the gates has."""

import pytest

from tests.foreign_dependencies import find_foreign_dependencies
from tests.gates.presets import PRESETS
from tests.synthesis.golden import WRITE, list_logical_ids, read_logical_ids


@pytest.mark.parametrize("preset", PRESETS)
def test_every_dependency_names_a_resource_of_its_template(synthesize, preset):
    for template in synthesize(PRESETS[preset]).values():
        assert find_foreign_dependencies(template) == []


def test_a_dependency_on_what_is_not_there_would_be_seen():
    resources = {"A": {"DependsOn": "B"}, "B": {"DependsOn": ["A", "C"]}}
    assert find_foreign_dependencies({"Resources": resources}) == ["B -> C"]


@pytest.mark.fault(67)
@pytest.mark.parametrize("preset", PRESETS)
def test_logical_ids_are_those_that_deployed_stacks_have(synthesize, preset):
    (template,) = synthesize(PRESETS[preset]).values()
    assert list_logical_ids(template) == read_logical_ids(preset), f"a changed id replaces the resource; {WRITE}"
