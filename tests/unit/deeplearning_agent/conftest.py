"""The nodes of tests/unit/node_lab.py, and the models beside this file."""

import sys
from pathlib import Path

sys.path.extend(str(Path(__file__).parent / folder) for folder in ("", "model", "membership"))

from tests.unit.metadata_server import imds  # noqa: F401 - pytest finds fixtures by their names
from tests.unit.node_lab import (  # noqa: F401 - pytest finds fixtures by their names
    agent_modules,
    lab,
    make_lab,
    served_lab,
    stopped,
    ticking_clock,
)
