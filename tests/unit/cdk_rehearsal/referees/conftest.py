"""One engine for all tests: each start of it takes two seconds of CPU."""

import pytest

from cdk_rehearsal.referees import judge


@pytest.fixture(autouse=True)
def _keep_engine(monkeypatch):
    monkeypatch.setattr(judge, "end_engine", lambda: None)
