"""The recipe of the first boot: every step of a node, in order, as its log shows it."""

import logging
import re

import pytest

PREPARATION = [
    "wait for credentials",
    "install packages",
    "prepare EFA",
    "prepare the instance store",
    "mount the file system",
    "prepare the limits of jobs",
    "turn on the GPUs' persistence mode",
    "count GPUs",
    "check the node's health",
    "install the command",
    "start provisioning",
    "make the SSH identity",
    "wait for sshd",
    "run the set-up script",
]
FORMATION = ["make the user key", "fetch the run script", "install generation 1"]


@pytest.mark.parametrize(
    ("index", "steps"), [(0, [*PREPARATION, *FORMATION]), (1, PREPARATION)], ids=["master", "worker"]
)
def test_a_first_boot_runs_each_step_in_this_order(lab, caplog, index, steps):
    caplog.set_level(logging.INFO)
    lab.write_state(1 + index)
    lab.run(lab.agent(index))
    found = [match[1] for message in caplog.messages if (match := re.fullmatch(r"(.*): done in [0-9.]+ s", message))]
    assert found == steps
