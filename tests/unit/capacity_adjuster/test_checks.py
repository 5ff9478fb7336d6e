"""The checks of the adjuster's edges hold, and the recorded histories break no promise."""

import edge_checks
import pytest
from recorded_histories import RECORDED

pytestmark = pytest.mark.usefixtures("silence")


@pytest.mark.defect("D01", "D02", "D04", "D05", "D08", "D09", "D10", "D11", "D12", "D14", "D17", "D20")
@pytest.mark.parametrize("check", [*edge_checks.CHECKS, *RECORDED], ids=lambda check: check.__name__)
def test_a_check_holds(check):
    check()
