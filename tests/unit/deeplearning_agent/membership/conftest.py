"""Disks of the membership's tests are fast."""

import pytest
from membership_bench import Bench


@pytest.fixture(autouse=True)
def _disks_are_fast(monkeypatch):
    monkeypatch.setattr("deeplearning_node.atomic_file.os.fsync", lambda _handle: None)


@pytest.fixture
def bench():
    """A master of two workers that joined."""
    return Bench()
