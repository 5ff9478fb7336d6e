"""The cache of base roots, packages and environments: where it is, and that what is in it is whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from cdk_rehearsal.cache import fill_once, find_cache, lock_cache, require_cache
from cdk_rehearsal.errors import UnavailableError


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"XDG_CACHE_HOME": "/caches", "HOME": "/home/me"}, "/caches/deeplearning-cdk"),
        ({"HOME": "/home/me"}, "/home/me/.cache/deeplearning-cdk"),
        ({"XDG_CACHE_HOME": "", "HOME": "/home/me"}, "/home/me/.cache/deeplearning-cdk"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.cache/deeplearning-cdk"),
    ],
)
def test_the_cache_is_the_users_and_no_checkouts(variables, folder):
    assert find_cache(variables) == Path(folder)


def test_the_refusal_of_a_user_without_a_home_asks_for_a_folder():
    with pytest.raises(UnavailableError, match="HOME must be this user's home, got ''; give --cache another folder"):
        find_cache({})


def test_a_cache_that_cannot_be_written_is_refused_with_a_remedy(tmp_path):
    require_cache(tmp_path / "new" / "cache")
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "file" / "cache"):
        with pytest.raises(UnavailableError, match=r"must be a writable folder, got .*; give --cache another folder"):
            fill_once(cache, "key", _fill, print)


def _fill(work):
    (work / "rest").write_text("not kept")
    (work / "made").mkdir()
    (work / "made" / "file").write_text("whole")
    return work / "made"


def test_a_folder_is_made_once_and_what_was_beside_it_is_gone(tmp_path):
    folder = fill_once(tmp_path / "cache", "key", _fill, print)
    assert folder == (tmp_path / "cache" / "key").resolve()
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert sorted(path.name for path in folder.parent.iterdir()) == [".key.lock", "key"]

    def refuse(_work):
        raise AssertionError("it is there already")

    assert fill_once(tmp_path / "cache", "key", refuse, print) == folder


def test_an_attempt_that_fails_leaves_no_folder_and_the_next_one_removes_what_it_left(tmp_path):
    def fail(work):
        (work / "half").write_text("half")
        raise OSError("planted")

    with pytest.raises(OSError, match="planted"):
        fill_once(tmp_path, "key", fail, print)
    assert not (tmp_path / "key").exists()
    assert (fill_once(tmp_path, "key", _fill, print) / "file").read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".key.lock", "key"]


def test_a_part_is_waited_for_with_a_word_others_and_fellow_readers_are_not(tmp_path):
    told = []
    with (
        lock_cache(tmp_path, "first", told.append, is_shared=True),
        lock_cache(tmp_path, "first", told.append, is_shared=True),
        lock_cache(tmp_path, "second", told.append),
    ):
        assert told == []
    script = (
        "import sys; from pathlib import Path; from cdk_rehearsal.cache import lock_cache\n"
        "with lock_cache(Path(sys.argv[1]), 'first', lambda line: print(line, flush=True)): print('mine')"
    )
    with lock_cache(tmp_path, "first", told.append, is_shared=True):
        command = [sys.executable, "-c", script, str(tmp_path)]
        other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == f"waiting for another process that uses {tmp_path / 'first'}\n"
    assert other.communicate()[0] == "mine\n"
