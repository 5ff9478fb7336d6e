"""What holds for every preset that the gates look at."""

from typing import Any

import pytest

from tests.foreign_dependencies import find_foreign_dependencies
from tests.gates.presets import PRESETS


@pytest.mark.parametrize("preset", PRESETS)
def test_every_dependency_names_a_resource_of_its_template(synthesize: Any, preset: str) -> None:
    for template in synthesize(PRESETS[preset]).values():
        assert find_foreign_dependencies(template) == []


def test_a_dependency_on_what_is_not_there_would_be_seen() -> None:
    resources = {"A": {"DependsOn": "B"}, "B": {"DependsOn": ["A", "C"]}}
    assert find_foreign_dependencies({"Resources": resources}) == ["B -> C"]
