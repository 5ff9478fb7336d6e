"""
Make or download what nodes boot from and install from, of every image, unless the cache holds it.

    python -m deeplearning_rehearsal.software
"""

import sys
from collections.abc import Callable
from pathlib import Path

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.lab.images.image_parts import SOFTWARE, prepare_layers
from deeplearning_rehearsal.software.digits import prepare_digits
from deeplearning_rehearsal.software.downloads import HOROVOD_VERSION, prepare_horovod
from deeplearning_rehearsal.template.environment_override import TORCH


def main() -> int:
    """Make it, with a line for each slow step; return 2 when this machine cannot."""
    try:
        _prepare_all(find_cache(), lambda line: print(line, flush=True))  # noqa: T201 - a command prints
    except UnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _prepare_all(cache: Path, tell: Callable[[str], None]) -> None:
    prepare_digits(cache, tell)
    base = prepare_base_root(cache, tell)
    wheels = prepare_horovod(cache, TORCH, HOROVOD_VERSION, tell)
    prepare_layers(SOFTWARE, base, wheels, cache, tell)


if __name__ == "__main__":
    sys.exit(main())
