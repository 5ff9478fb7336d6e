"""`nvidia-smi` of nodes that are said to have GPUs: lists them, and fails on everything else."""

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

COUNT = Path("/usr/lib/lab/gpu-count")


def list_gpus(count: int, machine_id: str) -> str:
    """
    Return what `nvidia-smi -L` prints.

    Args:
        count: GPUs of the node.
        machine_id: Seeds the UUIDs, which stay the same across reboots.
    """
    ids = (uuid.uuid5(uuid.NAMESPACE_OID, f"{machine_id}/{index}") for index in range(count))
    return "".join(f"GPU {index}: Stand-in GPU (UUID: GPU-{gpu_id})\n" for index, gpu_id in enumerate(ids))


def main(arguments: Sequence[str]) -> int:
    """Serve `-L` and `--list-gpus`."""
    if list(arguments) not in (["-L"], ["--list-gpus"]):
        sys.stderr.write(f"nvidia-smi stand-in: only -L is implemented, got {' '.join(arguments)!r}\n")
        return 2
    sys.stdout.write(list_gpus(int(COUNT.read_text()), Path("/etc/machine-id").read_text().strip()))
    return 0
