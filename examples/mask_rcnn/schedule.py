"""Schedule of TensorPack's Mask R-CNN on a number of GPUs."""  # noqa: INP001 - beside the program that uses it

from collections.abc import Sequence
from dataclasses import dataclass

IMAGES_PER_EPOCH = 120_000
STATED_BATCH = 8
"""Total batch for which TensorPack defines its schedules."""
SCHEDULES = {"1x": (120_000, 160_000, 180_000), "2x": (240_000, 320_000, 360_000)}
"""Steps at that batch after which the learning rate drops to a tenth, twice, and after which training ends."""


class JobError(ValueError):
    """The job cannot be run as requested; the message has the remedy."""


@dataclass(frozen=True)
class Schedule:
    """
    Training schedule on a number of GPUs.

    Attributes:
        gpus: Total number of GPUs, and of images per step.
        steps_per_epoch: Steps that TensorPack calls an epoch.
        drops: Epochs after which the learning rate drops.
        epochs: Total number of epochs.
        steps: TensorPack's own schedule, for its total batch.
    """

    gpus: int
    steps_per_epoch: int
    drops: tuple[int, ...]
    epochs: int
    steps: tuple[int, ...]


def count_gpus(hosts: int, gpus: int, ranks: int | None) -> int:
    """
    Return the number of GPUs that take part.

    Args:
        hosts: Number of hosts of the cluster.
        gpus: GPUs per host.
        ranks: Number that the user requests; None for all.

    Raises:
        JobError: TensorPack does not support the number, or there are fewer GPUs.
    """
    if hosts < 1:
        raise JobError(f"DEEPLEARNING_WORKERS_COUNT must be at least 1, got {hosts}; run this on a node of the cluster")
    if gpus < 1:
        raise JobError(f"DEEPLEARNING_WORKER_GPU_COUNT must be at least 1, got {gpus}; Mask R-CNN trains on GPUs")
    number = hosts * gpus if ranks is None else ranks
    possible = [count for count in range(1, hosts * gpus + 1) if is_possible(count, gpus)]
    if number not in possible:
        nearest = [*[count for count in possible if count < number][-1:], *[n for n in possible if n > number][:1]]
        raise JobError(
            f"--np must be 1, 2, 4 or a multiple of 8, on whole hosts of {gpus} GPUs, got {number}; "
            f"use --np {' or --np '.join(map(str, nearest))}"
        )
    return number


def is_possible(count: int, gpus: int) -> bool:
    """Return whether TensorPack supports a number of GPUs, and hosts with `gpus` each can provide it."""
    return (count % STATED_BATCH == 0 or STATED_BATCH % count == 0) and (count <= gpus or count % gpus == 0)


def make_schedule(gpus: int, steps: Sequence[int], images: int = IMAGES_PER_EPOCH) -> Schedule:
    """
    Return TensorPack's schedule for a number of GPUs.

    Args:
        gpus: Total number of GPUs. steps: The schedule for TensorPack's total batch and the images of COCO.
        images: Images per epoch; the number of epochs does not depend on it.
    """
    steps_per_epoch = max(1, images // gpus)
    scaled = tuple(step * images // IMAGES_PER_EPOCH for step in steps)
    ends = [int(step * STATED_BATCH / gpus // steps_per_epoch) for step in scaled]
    return Schedule(gpus, steps_per_epoch, tuple(ends[:-1]), ends[-1], scaled)
