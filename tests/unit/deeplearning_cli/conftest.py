"""A web server to download from."""

import contextlib

import pytest

from tests.unit.deeplearning_cli.range_server import RangeServer


@pytest.fixture
def web():
    with contextlib.closing(RangeServer()) as server:
        yield server
