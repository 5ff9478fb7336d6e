"""Stacks that the tests of the gates look at, and plant holes into."""

import functools

import pytest

from tests.gates.assembly import synthesize
from tests.gates.presets import PRESETS


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """Return a function from a preset's name to its stack as it is."""

    @functools.cache
    def make(preset):
        folder = tmp_path_factory.mktemp("gates") / preset
        return synthesize(preset, PRESETS[preset], folder)

    return make
