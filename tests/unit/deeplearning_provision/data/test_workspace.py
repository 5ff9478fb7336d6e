"""Of two runs that fill the same source's folder, the one that lost it can neither publish nor vouch for anything."""

import pytest

from deeplearning_contract.setting_parts import DataSettings
from deeplearning_provision.archives.tree_writer import TreeWriter
from deeplearning_provision.data import publication
from deeplearning_provision.data.target import Place
from deeplearning_provision.data.workspace import claim_workspace, has_workspace

SOURCE = DataSettings("set", "bucket", "set.tar", "efs")
KIND = "members--0123456789abcdef"


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path, "set")
    place.make_folders()
    return place


def write(workspace, name, count):
    TreeWriter(workspace.path).write_file((name,), [name.encode()])
    workspace.journal.append([str(count)])


def test_a_folder_is_taken_over_with_what_is_in_it(place):
    first = claim_workspace(place, KIND)
    with first.journal:
        write(first, "a", 1)
    second = claim_workspace(place, KIND)
    assert (second.path / "a").read_text() == "a"
    assert list(second.journal.read()) == ["1"]
    assert not first.path.exists()


def test_who_lost_the_folder_cannot_publish_it(place):
    first = claim_workspace(place, KIND)
    with first.journal:
        write(first, "a", 1)
    second = claim_workspace(place, KIND)
    with pytest.raises(FileNotFoundError):
        publication.publish(place, first.path, SOURCE, "digest")
    assert not place.target.exists()
    publication.publish(place, second.path, SOURCE, "digest")
    assert publication.is_complete(place, "digest")
    assert not has_workspace(place)


def test_who_lost_the_folder_cannot_make_it_again(place):
    first = claim_workspace(place, KIND)
    claim_workspace(place, KIND)
    with pytest.raises(FileNotFoundError):
        TreeWriter(first.path).write_file(("a",), [b"a"])
    with pytest.raises(FileNotFoundError):
        TreeWriter(first.path).make_folder(("a",))


def test_what_was_noted_of_a_folder_that_was_begun_anew_does_not_count(place):
    first = claim_workspace(place, KIND)
    second = claim_workspace(place, KIND)
    with first.journal:
        first.journal.append(["5"])
    assert list(second.journal.read()) == []
    with second.journal:
        write(second, "a", 1)
    assert list(claim_workspace(place, KIND).journal.read()) == ["1"]


@pytest.mark.parametrize("is_there", [True, False])
def test_an_intent_of_a_folder_that_another_run_took_publishes_nothing(place, is_there):
    place.target.mkdir()
    (place.target / "old").touch()
    lost = claim_workspace(place, KIND)
    intent = {"digest": "new", "incoming": lost.path.name, "inode": lost.path.stat().st_ino + 1}
    if not is_there:
        lost.path.rmdir()
    publication.write_note(place, publication.INTENT, intent)
    publication.recover(place)
    assert (place.target / "old").exists()
    assert not publication.is_complete(place, "new")
    assert publication.read_note(place, publication.INTENT) == {}


def test_data_that_was_moved_away_for_a_publication_that_was_lost_comes_back(place):
    place.replaced.mkdir()
    (place.replaced / "old").touch()
    publication.write_note(place, publication.INTENT, {"digest": "new", "incoming": ".gone", "inode": 1})
    publication.recover(place)
    assert (place.target / "old").exists()
