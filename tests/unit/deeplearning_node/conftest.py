"""The nodes of tests/unit/node_lab.py."""

from tests.unit.node_lab import (  # noqa: F401 - pytest finds fixtures by their names
    agent_folder,
    agent_modules,
    lab,
    make_lab,
    served_lab,
    stopped,
    ticking_clock,
)
