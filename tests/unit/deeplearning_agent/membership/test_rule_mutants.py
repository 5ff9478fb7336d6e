"""Every rule holds, and every defect that is planted in one is caught; the run ends with the score."""

import pytest
from rule_checks import CHECKS
from rule_mutants import MUTANTS

from deeplearning_node.failure import StageFailure


@pytest.fixture(autouse=True)
def _disks_are_fast(monkeypatch):
    monkeypatch.setattr("deeplearning_node.atomic_file.os.fsync", lambda _handle: None)


@pytest.fixture(scope="module")
def caught(pytestconfig):
    """Collect what was caught; at the end, print it to the terminal."""
    lines = []
    yield lines
    score = f"{len(lines)} of {len(MUTANTS)} planted defects caught, score {len(lines) / len(MUTANTS):.0%}"
    with pytestconfig.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print("", *lines, f"rules of formation and membership: {score}", sep="\n")


def name(function):
    return function.__name__


@pytest.mark.parametrize("check", CHECKS, ids=name)
def test_a_rule_holds(check):
    check()


@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_a_planted_defect_is_caught(mutant, monkeypatch, caught):
    mutant(monkeypatch)
    broken = next((check for check in CHECKS if is_broken(check)), None)
    assert broken, f"no rule is broken by: {mutant.__name__}"
    caught.append(f"  {mutant.__name__.replace('_', ' ')}: breaks {broken.__name__.replace('_', ' ')}")


def is_broken(check):
    """Tell whether a rule does not hold, or the code ends in an error of its own."""
    try:
        check()
    except (AssertionError, StageFailure, TypeError):
        return True
    return False
