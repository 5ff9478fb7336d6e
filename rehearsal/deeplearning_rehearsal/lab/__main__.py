"""
Make the nodes' base root file system, unless the cache holds it.

    python -m deeplearning_rehearsal.lab
"""

import sys

from deeplearning_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.lab.base_root import prepare_base_root
from deeplearning_rehearsal.lab.cache import find_cache


def main() -> int:
    """Make it, with a line for each slow step; return 2 when this machine cannot."""
    try:
        prepare_base_root(find_cache(), lambda line: print(line, flush=True))  # noqa: T201 - a command prints
    except UnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
