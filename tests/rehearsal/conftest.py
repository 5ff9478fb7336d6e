"""Rehearsals need root: without it they fail, unless the user says that they may be skipped."""

import os

import pytest

SKIP_VARIABLE = "DEEPLEARNING_SKIP_ROOT_TESTS"


def demand_root(user_id, environment):
    """Fail or skip the test that runs, unless the user is root."""
    if user_id == 0:
        return
    if environment.get(SKIP_VARIABLE) == "1":
        pytest.skip(f"needs root, and {SKIP_VARIABLE} is 1")
    pytest.fail(f"user must be root, got id {user_id}; run as root, or set {SKIP_VARIABLE}=1 to skip", pytrace=False)


@pytest.fixture(autouse=True)
def _demand_root():
    demand_root(os.geteuid(), os.environ)
