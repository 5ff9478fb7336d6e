"""Every rule of formation and membership holds."""

import pytest
from rule_checks import CHECKS


@pytest.fixture(autouse=True)
def _disks_are_fast(monkeypatch):
    monkeypatch.setattr("deeplearning_node.atomic_file.os.fsync", lambda _handle: None)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_rule_holds(check):
    check()
