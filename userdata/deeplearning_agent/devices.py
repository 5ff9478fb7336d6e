"""Counts the GPUs that the driver shows, whatever the instance type is called."""

import logging
import re

from deeplearning_agent.failure import StageFailure
from deeplearning_agent.node import Node
from deeplearning_agent.programs import ProgramError

LOG = logging.getLogger(__name__)
QUERY_SECONDS = 120
"""The first query after boot loads the driver, on eight GPUs."""
_GPU_LINE = re.compile(r"^GPU [0-9]+:", re.MULTILINE)


def count_gpus(node: Node) -> int:
    """
    Count the GPUs of this node.

    Returns:
        What `nvidia-smi -L` lists; 0 without that command.

    Raises:
        StageFailure: The instance type has GPUs and the driver shows none.
    """
    expected = node.settings.expected_gpu_count
    cause, output = "nvidia-smi lists none", ""
    try:
        output = node.programs.run(["nvidia-smi", "-L"], timeout_seconds=QUERY_SECONDS)
    except ProgramError as error:
        cause, output = str(error), error.output
        count = 0
    else:
        count = len(_GPU_LINE.findall(output))
    if expected > 0 and count == 0:
        raise StageFailure(
            f"the instance type has {expected} GPUs and the node shows 0: {cause}",
            "give an image whose NVIDIA driver supports them; a node never joins without its driver",
            output=output,
        )
    if count != expected:
        LOG.warning("counted %d GPUs where the instance type has %d; slots follow the count", count, expected)
    return count
