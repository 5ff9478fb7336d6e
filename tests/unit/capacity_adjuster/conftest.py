"""Makes the model of Auto Scaling importable beside the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from deeplearning_contract.settings import AdjusterSettings


@pytest.fixture
def settings():
    return AdjusterSettings(
        cluster="training",
        state_table="state",
        master_queue_url="http://localhost/master",
        signal_url="http://localhost/signal",
        worker_min_capacity=2,
        settle_seconds=10,
    )
