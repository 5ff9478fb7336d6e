"""`deeplearning data --preset`: where a known data set lies on this node, and what of it is missing, for jobs."""

import json
import sys
from pathlib import Path

from deeplearning_contract.data_sets import DATA_SETS
from deeplearning_contract.names import DATA_DIRECTORY

WHOLE, INCOMPLETE = 0, 1
_INNER = "data"
"""Archives of deeplearning-cfn have everything in this folder."""


def show_known_data(name: str, at: str, root: Path) -> int:
    """
    Print a line of JSON: `folder`, `parts` (name of a part -> its path) and `missing` (names of parts).

    Args:
        name: Of the data set.
        at: Where it lies; empty for where the cluster stages a source of that name.
        root: Where the node's file tree begins.

    Returns:
        0 all of it is there, 1 something is missing.
    """
    parts = DATA_SETS[name].parts
    staged = Path(at) if at else root / DATA_DIRECTORY.lstrip("/") / name
    folder = max((staged, staged / _INNER), key=lambda place: sum((place / path).exists() for path in parts.values()))
    missing = [part for part, path in parts.items() if not (folder / path).exists()]
    paths = {part: str(folder / path) for part, path in parts.items()}
    sys.stdout.write(f"{json.dumps({'folder': str(folder), 'parts': paths, 'missing': missing})}\n")
    return INCOMPLETE if missing else WHOLE
