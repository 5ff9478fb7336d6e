"""Finished environments that outlive a rehearsal."""

import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from cdk_rehearsal.errors import RehearsalError
from deeplearning_contract.setting_parts import EnvironmentCacheSettings, EnvironmentSettings, ScriptSettings
from deeplearning_rehearsal.software.kept_environments import PLACE, KeptEnvironments

HOROVOD = EnvironmentSettings("horovod", horovod="0.28.1", framework="torch==2.13.0")
RECIPE, OTHER = "a" * 24, "b" * 24


def _make(root, recipe, key, source="torch==2.13.0", kind="horovod"):
    """Write what nodes leave on the shared file system."""
    folder = root / PLACE / key
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment.tar").write_text(f"{key} of {source}")
    (folder / "complete.json").write_text(json.dumps({"key": key, "recipe": {"kind": kind, "source": source}}))
    (root / PLACE / f"{recipe}.json").write_text(json.dumps({"key": key, "boot": ""}))
    return folder


def _list(root):
    return {path.name for path in (root / PLACE).iterdir()} if (root / PLACE).is_dir() else set()


@pytest.fixture
def keep(tmp_path):
    def make(wanted=HOROVOD):
        return KeptEnvironments(tmp_path / "cache", wanted, said.append)

    said = []
    make.said = said  # type: ignore[attr-defined]
    return make


def _folder(path):
    path.mkdir()
    return path


def test_an_environment_of_one_rehearsal_is_found_by_the_next(tmp_path, keep):
    first, second = _folder(tmp_path / "first"), _folder(tmp_path / "second")
    made = _make(first, RECIPE, "k1")
    (first / PLACE).chmod(0o2775)
    (first / PLACE / "my-cluster.json").write_text('{"key": "k1", "doing": "this and that"}')
    (first / PLACE / ".k2.making-i-1").mkdir()
    keep().keep([first])
    kept = keep()
    kept.put([second])
    assert kept.brought == {"k1"}
    assert _list(second) == {"k1", f"{RECIPE}.json"}
    assert (second / PLACE / "k1" / "environment.tar").read_text() == (made / "environment.tar").read_text()
    assert (second / PLACE).stat().st_mode == (first / PLACE).stat().st_mode


def test_the_file_system_is_given_to_whom_it_belonged(tmp_path, keep, monkeypatch):
    first, second = _folder(tmp_path / "first"), _folder(tmp_path / "second")
    _make(first, RECIPE, "k1")
    keep().keep([first])
    given = []
    monkeypatch.setattr(shutil, "chown", lambda path, _user, _group: given.append(path))
    keep().put([second])
    assert given == [second, second / PLACE.parent, second / PLACE]


def test_nodes_cannot_damage_what_is_kept(tmp_path, keep):
    first, second, third = (_folder(tmp_path / name) for name in ("first", "second", "third"))
    _make(first, RECIPE, "k1")
    keep().keep([first])
    keep().put([second])
    with (second / PLACE / "k1" / "environment.tar").open("a") as archive:
        archive.write("damage")
    (second / PLACE / f"{RECIPE}.json").unlink()
    keep().put([third])
    assert (third / PLACE / "k1" / "environment.tar").read_text() == "k1 of torch==2.13.0"


def test_an_environment_that_was_made_anew_replaces_the_kept_one(tmp_path, keep):
    first, second, third = (_folder(tmp_path / name) for name in ("first", "second", "third"))
    _make(first, RECIPE, "k1")
    keep().keep([first])
    made = _make(second, RECIPE, "k1")
    (made / "environment.tar").write_text("better")
    (made / "complete.json").write_text((made / "complete.json").read_text() + "\n")
    keep().keep([second])
    keep().put([third])
    assert (third / PLACE / "k1" / "environment.tar").read_text() == "better"


def test_environments_without_a_recipe_are_removed_and_the_others_stay(tmp_path, keep):
    first, second, third = (_folder(tmp_path / name) for name in ("first", "second", "third"))
    _make(first, RECIPE, "k1")
    _make(first, OTHER, "other", source="")
    keep().keep([first])
    _make(second, RECIPE, "k2")
    keep().keep([second])
    keep().put([third])
    assert _list(third) == {"k2", "other", f"{RECIPE}.json", f"{OTHER}.json"}


def test_only_what_the_cluster_declares_is_copied(tmp_path, keep):
    first = _folder(tmp_path / "first")
    _make(first, RECIPE, "torch")
    _make(first, OTHER, "file", source="5e", kind="requirements")
    keep().keep([first])
    requirements = EnvironmentSettings("requirements", file=ScriptSettings("b", "k", "5e"))
    for number, (wanted, keys) in enumerate(
        [
            (HOROVOD, {"torch"}),
            (requirements, {"file"}),
            (EnvironmentSettings("horovod", horovod="0.28.1", framework="tensorflow==2.15.1"), set()),
            (None, set()),
        ]
    ):
        root, kept = _folder(tmp_path / str(number)), keep(wanted)
        kept.put([root])
        assert kept.brought == keys
        assert {name for name in _list(root) if not name.endswith(".json")} == keys


def test_a_file_system_with_environments_of_its_own_is_left_alone(tmp_path, keep):
    first, second = _folder(tmp_path / "first"), _folder(tmp_path / "second")
    _make(first, RECIPE, "k1")
    keep().keep([first])
    _make(second, OTHER, "own")
    kept = keep()
    kept.put([second])
    assert (kept.brought, "k1" in _list(second)) == (set(), False)


def test_an_environment_that_is_not_whole_is_not_kept(tmp_path, keep):
    first, second = _folder(tmp_path / "first"), _folder(tmp_path / "second")
    (_make(first, RECIPE, "k1") / "complete.json").unlink()
    keep().keep([first])
    keep().put([second])
    assert not _list(second)


def test_a_cache_that_cannot_be_written_is_reported_and_fails_nothing(tmp_path, keep):
    first = _folder(tmp_path / "first")
    _make(first, RECIPE, "k1")
    (tmp_path / "cache").touch()
    keep().keep([first])
    assert keep.said[0].startswith("the environment could not be kept for later rehearsals: cache must be a writable")


def test_a_cache_may_hold_what_is_kept_with_a_wrong_byte_in_each_archive(tmp_path, keep):
    first = _folder(tmp_path / "first")
    whole = (_make(first, RECIPE, "k1") / "environment.tar").read_bytes()
    complete = json.dumps({"key": "k1", "recipe": {"kind": "horovod", "source": ""}, "archive": {"sha256": "f" * 64}})
    (first / PLACE / "k1" / "complete.json").write_text(complete)
    _make(first, OTHER, "k2", source="torch==1.0")
    keep().keep([first])
    cache = EnvironmentCacheSettings("team", "ready/")
    found = dict(keep(replace(HOROVOD, cache=cache)).list_damaged())
    assert list(found) == [f"ready/k1/{'f' * 64}.tar", "ready/k1/complete.json", f"ready/{RECIPE}.json"]
    archive, *notes = found.values()
    assert sum(mine != theirs for mine, theirs in zip(archive, whole, strict=True)) == 1
    assert [json.loads(note)["key"] for note in notes] == ["k1", "k1"]


@pytest.mark.parametrize("wanted", [None, HOROVOD, replace(HOROVOD, cache=EnvironmentCacheSettings("team"))])
def test_a_cache_of_nothing_is_refused(keep, wanted):
    with pytest.raises(
        RehearsalError, match="must be kept before a cache can have it, got none; rehearse another case"
    ):
        list(keep(wanted).list_damaged())


def test_nodes_of_an_image_with_the_environment_have_what_a_first_boot_leaves(tmp_path, keep):
    first, content = _folder(tmp_path / "first"), _folder(tmp_path / "content")
    assert keep().install() == ()
    (content / "bin").mkdir()
    made = _make(first, RECIPE, "k1")
    subprocess.run(["tar", "-C", str(content), "-cf", str(made / "environment.tar"), "."], check=True)
    _make(first, OTHER, "k2", source="torch==1.0")
    keep().keep([first])
    (layer,) = keep().install()
    local = layer / "opt/deeplearning/environments"
    assert sorted(str(path.relative_to(local)) for path in local.rglob("*")) == sorted(
        ["k1", "k1/bin", "k1/complete.json", f"{RECIPE}.json"]
    )
    (local / "k1" / "bin").rmdir()
    assert keep().install() == (layer,)
    assert not (local / "k1" / "bin").exists()  # It was not unpacked again.
    assert keep(None).install() == ()


def test_an_image_has_the_environment_of_each_recipe_that_leads_to_it(tmp_path, keep):
    first, content = _folder(tmp_path / "first"), _folder(tmp_path / "content")
    made = _make(first, RECIPE, "k1")
    subprocess.run(["tar", "-C", str(content), "-cf", str(made / "environment.tar"), "."], check=True)
    keep().keep([first])
    keep().install()
    shutil.copy(first / PLACE / f"{RECIPE}.json", first / PLACE / f"{OTHER}.json")
    keep().keep([first])
    (layer,) = keep().install()
    assert {path.name for path in (layer / "opt/deeplearning/environments").glob("*.json")} == {
        f"{RECIPE}.json",
        f"{OTHER}.json",
    }
