"""`fi_info` of nodes that are said to have GPUs: lists one EFA, and fails on all else."""

import sys
from collections.abc import Sequence

QUESTION = ("-p", "efa", "-t", "FI_EP_RDM")
ANSWER = """\
provider: efa
    fabric: efa
    domain: efa_0-rdm
    version: 2.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
"""


def main(arguments: Sequence[str]) -> int:
    """Answer a call; return the exit status."""
    if tuple(arguments) != QUESTION:
        sys.stderr.write(f"fi_info: this stand-in answers {' '.join(QUESTION)} only, got {' '.join(arguments)}\n")
        return 1
    sys.stdout.write(ANSWER)
    return 0
