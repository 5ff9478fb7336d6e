"""Makes the model of Auto Scaling importable beside the tests."""

import logging
import sys
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parent / folder) for folder in ("", "events", "model", "policy"))

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


@pytest.fixture
def silence():
    """Log nothing: pytest would keep every line of a search of thousands of histories."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
