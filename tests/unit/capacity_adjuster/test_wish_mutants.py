"""Every planted defect of the wish is caught."""

import mutants
import pytest
from request_mutants import REQUEST_MUTANTS
from wish_mutants import WISH_MUTANTS

pytestmark = pytest.mark.usefixtures("silence")


@pytest.mark.parametrize("mutant", WISH_MUTANTS + REQUEST_MUTANTS, ids=lambda mutant: mutant.plant.__name__)
def test_a_planted_defect_of_the_wish_is_caught(mutant, monkeypatch, score):
    score.planted += 1
    mutant.plant(monkeypatch)
    with pytest.raises((AssertionError, LookupError, TypeError, ValueError), match=mutant.promise) as caught:
        mutant.check()
    said = str(caught.value).splitlines()[0]
    score.lines.append(f"  {mutant.row:6} {mutant.what}: caught by {mutants.name_check(mutant)}: {said[:70]}")
