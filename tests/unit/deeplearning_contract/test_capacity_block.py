"""Words for a Capacity Block that workers wait for."""

from dataclasses import replace

import pytest

from deeplearning_contract.capacity_block import CapacityBlock

BLOCK = CapacityBlock("cr-0123456789abcdef0", "scheduled", 1796124600, 0)
WAIT = "workers wait for the block cr-0123456789abcdef0"

REMEDY = "deploy with the id of another in workers.purchase, or with another purchase"


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (BLOCK, f"{WAIT} until 2026-12-01T11:30:00Z"),
        (replace(BLOCK, start=0), f"{WAIT} until it begins"),
        (replace(BLOCK, state="payment-pending"), f"{WAIT} until 2026-12-01T11:30:00Z, which is payment-pending"),
        (replace(BLOCK, state="delayed"), f"{WAIT}, which EC2 delays beyond 2026-12-01T11:30:00Z"),
        (replace(BLOCK, state="delayed", start=0), f"{WAIT}, which EC2 delays"),
        (replace(BLOCK, error="no"), f"{WAIT} until 2026-12-01T11:30:00Z; it could not be read: no"),
        (
            replace(BLOCK, state="cancelled"),
            f"capacity block {BLOCK.reservation_id} must be active or begin later, got cancelled; {REMEDY}",
        ),
    ],
)
def test_a_block_tells_what_its_workers_wait_for_or_that_they_never_come(block, words):
    assert str(block.reason) == words
