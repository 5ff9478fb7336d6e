"""The cache of base roots and packages: what is in it is whole."""

from pathlib import Path

import pytest

from deeplearning_rehearsal.lab.cache import fill_once


def _fill(work: Path) -> Path:
    (work / "rest").write_text("not kept")
    (work / "made").mkdir()
    (work / "made" / "file").write_text("whole")
    return work / "made"


def test_a_folder_is_made_once_and_what_was_beside_it_is_gone(tmp_path: Path) -> None:
    folder = fill_once(tmp_path / "cache", "key", _fill)
    assert folder == (tmp_path / "cache" / "key").resolve()
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert sorted(path.name for path in folder.parent.iterdir()) == [".lock", "key"]

    def refuse(_work: Path) -> Path:
        raise AssertionError("it is there already")

    assert fill_once(tmp_path / "cache", "key", refuse) == folder


def test_an_attempt_that_fails_leaves_no_folder_and_the_next_one_removes_what_it_left(tmp_path: Path) -> None:
    def fail(work: Path) -> Path:
        (work / "half").write_text("half")
        raise OSError("planted")

    with pytest.raises(OSError, match="planted"):
        fill_once(tmp_path, "key", fail)
    assert not (tmp_path / "key").exists()
    assert (fill_once(tmp_path, "key", _fill) / "file").read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "key"]
