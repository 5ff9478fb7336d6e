"""Documents of the contract's shapes, and ones that are nearly so."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
