"""Makes the model of Auto Scaling importable beside the tests, and prints the score of the planted defects."""

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parent / folder) for folder in ("", "events", "model", "policy"))

from deeplearning_contract.settings import AdjusterSettings


@dataclass
class Score:
    """
    Results of the planted defects.

    Attributes:
        planted: Number of planted defects.
        lines: A line for each that was caught.
    """

    planted: int = 0
    lines: list[str] = field(default_factory=list)


SCORE = pytest.StashKey[Score]()


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


@pytest.fixture
def score(pytestconfig):
    return pytestconfig.stash.setdefault(SCORE, Score())


def pytest_terminal_summary(terminalreporter, config):
    score = config.stash.get(SCORE, None)
    if score is None:
        return
    for line in score.lines:
        terminalreporter.write_line(line)
    caught = len(score.lines)
    terminalreporter.write_line(
        f"capacity adjuster: {caught} of {score.planted} planted defects caught, score {caught / score.planted:.0%}"
    )
