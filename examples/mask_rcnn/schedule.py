"""The schedule of TensorPack's Mask R-CNN on a number of GPUs."""  # noqa: INP001 - beside the program that uses it

from collections.abc import Sequence
from dataclasses import dataclass

IMAGES_PER_EPOCH = 120_000
STATED_BATCH = 8
"""The total batch for which TensorPack states its schedules."""
SCHEDULES = {"1x": (120_000, 160_000, 180_000), "2x": (240_000, 320_000, 360_000)}
"""Steps at the stated batch after which the learning rate drops to a tenth, twice, and after which training ends."""


class JobError(ValueError):
    """The job cannot be run as it was asked for; the message has the remedy."""


@dataclass(frozen=True)
class Schedule:
    """
    How training runs on a number of GPUs.

    Attributes:
        gpus: In all; as many images a step.
        steps_per_epoch: Steps that TensorPack calls an epoch.
        drops: Epochs after which the learning rate drops.
        epochs: In all.
        steps: TensorPack's own schedule, for the stated batch.
    """

    gpus: int
    steps_per_epoch: int
    drops: tuple[int, ...]
    epochs: int
    steps: tuple[int, ...]


def count_gpus(hosts: int, gpus: int, ranks: int | None) -> int:
    """
    Return how many GPUs take part.

    Args:
        hosts: Of the cluster.
        gpus: A host.
        ranks: How many the user wants; None for all.

    Raises:
        JobError: TensorPack does not train on so many, or there are not so many.
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
    """Tell whether TensorPack trains on so many GPUs, and `deeplearning run` can take them from hosts of `gpus`."""
    return (count % STATED_BATCH == 0 or STATED_BATCH % count == 0) and (count <= gpus or count % gpus == 0)


def make_schedule(gpus: int, steps: Sequence[int], images: int = IMAGES_PER_EPOCH) -> Schedule:
    """
    Compute what TensorPack makes of its schedule on so many GPUs.

    Args:
        gpus: In all.
        steps: The schedule for the stated batch and the images of COCO.
        images: Of an epoch; the same number of epochs is made, however many images there are.
    """
    steps_per_epoch = max(1, images // gpus)
    scaled = tuple(step * images // IMAGES_PER_EPOCH for step in steps)
    ends = [int(step * STATED_BATCH / gpus // steps_per_epoch) for step in scaled]
    return Schedule(gpus, steps_per_epoch, tuple(ends[:-1]), ends[-1], scaled)
