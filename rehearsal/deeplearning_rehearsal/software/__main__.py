"""
Make or download what nodes boot from and install from, of every image, unless the cache holds it.

    python -m deeplearning_rehearsal.software
"""

import sys

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.lab.images.image_parts import SOFTWARE, prepare_layers
from cdk_rehearsal.run.progress import report_line
from deeplearning_rehearsal.software.downloads import HOROVOD_VERSION, prepare_digits, prepare_horovod
from deeplearning_rehearsal.template import TORCH


def main() -> int:
    """Make it, with a line for each slow step; return 2 when this machine cannot."""
    cache = find_cache()
    try:
        prepare_digits(cache, report_line)
        base = prepare_base_root(cache, report_line)
        prepare_layers(SOFTWARE, base, prepare_horovod(cache, TORCH, HOROVOD_VERSION, report_line), cache, report_line)
    except UnavailableError as error:
        report_line(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
