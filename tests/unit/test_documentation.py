"""The generated parts of the README are what the code says today."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    specification = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_readme_is_up_to_date(generator: ModuleType) -> None:
    text = (ROOT / "README.md").read_text()
    assert generator.render(text) == text, "run: make docs"


def test_readme_with_an_old_table_is_noticed(generator: ModuleType) -> None:
    text = (ROOT / "README.md").read_text().replace("| prop | what | default |", "| prop | meaning | default |")
    assert generator.render(text) != text
