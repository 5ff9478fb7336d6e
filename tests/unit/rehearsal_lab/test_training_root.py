"""The root file system that brings what jobs need."""

import pytest

from deeplearning_rehearsal.lab import base_root, training_root
from deeplearning_rehearsal.lab.base_root import BaseRoot


def test_another_recipe_has_another_name_in_the_cache_and_none_is_the_base_roots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = training_root.recipe_key()
    assert before == training_root.recipe_key() != base_root.recipe_key()
    monkeypatch.setattr(training_root, "TRAINING_PACKAGES", (*training_root.TRAINING_PACKAGES, "nano"))
    assert training_root.recipe_key() != before


def test_a_cached_root_is_taken_as_it_is_and_keeps_the_archive(tmp_path) -> None:
    base = BaseRoot(tmp_path / "base" / "root", tmp_path / "base" / "archive")
    folder = tmp_path / training_root.recipe_key()
    folder.mkdir()
    said: list[str] = []
    assert training_root.prepare_training_root(base, tmp_path, said.append) == BaseRoot(folder / "root", base.archive)
    assert said == []
