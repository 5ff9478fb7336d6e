"""The notebook runs against a kept rehearsal, which needs root."""

import os

import pytest

from tests.rehearsal.conftest import demand_root


@pytest.fixture
def _root():
    demand_root(os.geteuid(), os.environ)
