"""The nodes of tests/unit/node_lab.py, and the models beside this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from tests.unit.node_lab import (  # noqa: F401 - pytest finds fixtures by their names
    aws,
    hurried_clock,
    lab,
    make_lab,
    package_directory,
    served_lab,
    signals,
    stopped,
    ticking_clock,
)
