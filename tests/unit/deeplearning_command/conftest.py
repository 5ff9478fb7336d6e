"""The nodes of tests/unit/node_lab.py."""

from tests.unit.node_lab import (  # noqa: F401 - pytest finds fixtures by their names
    aws,
    hurried_clock,
    lab,
    make_lab,
    package_directory,
    signals,
    stopped,
    ticking_clock,
)
