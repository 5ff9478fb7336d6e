"""The nodes of tests/unit/node_lab.py, and a master on which the command is installed."""

import pytest

from deeplearning_agent.boot.steps import install_command
from tests.unit import job_lab as jobs
from tests.unit import node_lab

compiled = jobs.compiled
job_lab = jobs.job_lab
lab = node_lab.lab
make_lab = node_lab.make_lab
agent_folder = node_lab.agent_folder
stopped = node_lab.stopped
ticking_clock = node_lab.ticking_clock


@pytest.fixture
def node(lab, ticking_clock):
    node = lab.node(0, ticking_clock())
    install_command(node)
    return node
