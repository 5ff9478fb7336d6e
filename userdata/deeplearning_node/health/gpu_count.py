"""The GPUs that the driver shows: keeps them started, and counts them, whatever the instance type is called."""

import logging
import re

from deeplearning_node.failure import StageFailure
from deeplearning_node.health.findings import last_line
from deeplearning_node.health.gpus import COMMAND
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

LOG = logging.getLogger(__name__)
QUERY_SECONDS = 120
"""The first query after boot loads the driver, on eight GPUs."""
_GPU_LINE = re.compile(r"^GPU [0-9]+:", re.MULTILINE)


def turn_on_persistence(node: Node) -> None:
    """
    Let the driver keep GPUs started while nobody uses them, until the next boot.

    Ubuntu's package starts `nvidia-persistenced --no-persistence-mode`. Each `nvidia-smi` then starts all GPUs anew:
    with eight it takes more than 25 s (Azure/aks-gpu#105, Azure/AgentBaker#2829), and the load that it shows is 90 to
    99 % on GPUs that nobody uses (jina-ai/clip-as-service#254).

    Effects: `nvidia-smi -pm 1`, where there is that command. A failure is logged and no more.
    """
    if not node.programs.has(COMMAND):
        return
    try:
        node.programs.run([COMMAND, "-pm", "1"], timeout_seconds=QUERY_SECONDS)
    except ProgramError as error:
        # A master that does not train has its workers' image, and so a driver without a GPU.
        level = logging.WARNING if node.settings.expected_gpu_count else logging.INFO
        LOG.log(level, "persistence mode could not be turned on: %s: %s", error, last_line(error.output))


def count_gpus(node: Node) -> int:
    """
    Return the GPUs that `nvidia-smi -L` lists; 0 without that command.

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
