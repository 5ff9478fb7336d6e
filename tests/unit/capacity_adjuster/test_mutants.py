"""Every planted defect is caught, and what cannot be planted is explained; the run ends with the score."""

import edge_checks
import pytest
import request_mutants  # noqa: F401 - it plants
import requested_capacity_mutants  # noqa: F401 - it plants
import stop_mutants  # noqa: F401 - it plants
from mutants import MUTANTS, NOT_APPLICABLE, name_check
from recorded_histories import RECORDED, hunt

from tests.depth import IS_DEEP

pytestmark = pytest.mark.usefixtures("silence")
DEFECTS = [f"D{number:02}" for number in range(1, 22)]


def test_every_defect_of_the_predecessor_is_planted_or_explained():
    planted = {mutant.row for mutant in MUTANTS} - {"policy", "request"}
    assert planted.isdisjoint(NOT_APPLICABLE)
    assert sorted(planted | set(NOT_APPLICABLE)) == DEFECTS
    assert all(reason and "\n" not in reason for reason in NOT_APPLICABLE.values())


@pytest.mark.parametrize("check", [*edge_checks.CHECKS, *RECORDED], ids=lambda check: check.__name__)
def test_a_check_holds_for_what_is_not_patched(check):
    check()


@pytest.mark.defect("D01", "D02", "D03", "D04", "D05", "D06", "D07", "D08", "D09")
@pytest.mark.defect("D10", "D11", "D12", "D14", "D15", "D16", "D17", "D20")
@pytest.mark.parametrize(
    "mutant",
    MUTANTS,
    ids=lambda mutant: f"{mutant.row}-{mutant.what.replace(' ', '_')}-{name_check(mutant)}",
)
def test_a_planted_defect_is_caught(mutant, monkeypatch, score):
    score.planted += 1
    mutant.plant(monkeypatch)
    is_hunted = IS_DEEP and mutant.check in RECORDED
    with pytest.raises((AssertionError, LookupError, TypeError, ValueError), match=mutant.promise) as caught:
        hunt(mutant.check.machine, mutant.promise) if is_hunted else mutant.check()
    said = str(caught.value).splitlines()[0]
    line = f"  {mutant.row:6} {mutant.what}: caught by {name_check(mutant)}: {said[:70]}"
    score.lines.append("\n".join((line, *getattr(caught.value, "__notes__", ()))))
