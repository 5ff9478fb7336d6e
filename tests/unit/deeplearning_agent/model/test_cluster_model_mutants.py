"""Every planted defect breaks a promise of the cluster's model, and what is not planted is explained."""

import re

import pytest
from model_history import play
from model_mutants import MUTANTS, NOT_APPLICABLE

DEFECTS = [*(f"D{number}" for number in range(22, 33)), "D37", "D41", "D42", "D47"]
HISTORIES = list({id(mutant.history): mutant for mutant in MUTANTS}.values())


@pytest.fixture(scope="module")
def caught(pytestconfig):
    """Collect what was caught; at the end, print it to the terminal."""
    lines = []
    yield lines
    score = f"{len(lines)} of {len(MUTANTS)} planted defects caught, score {len(lines) / len(MUTANTS):.0%}"
    with pytestconfig.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print("", *lines, f"cluster model: {score}", sep="\n")


def test_every_defect_of_the_predecessor_is_planted_or_explained():
    planted = {mutant.row for mutant in MUTANTS} - {"rule"}
    assert planted.isdisjoint(NOT_APPLICABLE)
    assert sorted(planted | set(NOT_APPLICABLE)) == DEFECTS


@pytest.mark.parametrize("mutant", HISTORIES, ids=lambda mutant: mutant.what.replace(" ", "_"))
def test_the_history_is_fine_without_the_defect(mutant):
    play(mutant.history)


@pytest.mark.defect("D22", "D23", "D24", "D27", "D28", "D29", "D30", "D31", "D37", "D41", "D42", "D47")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.row}-{mutant.what.replace(' ', '_')}")
def test_a_planted_defect_is_caught(mutant, monkeypatch, caught):
    mutant.plant(monkeypatch)
    with pytest.raises(AssertionError) as broken:
        play(mutant.history)
    said = str(broken.value).splitlines()[0]
    assert re.search(mutant.promise, said), said
    caught.append(f"{mutant.row:5} {mutant.what}: {said[:80]}")
