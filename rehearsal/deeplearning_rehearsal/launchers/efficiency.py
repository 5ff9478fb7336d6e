"""What `deeplearning run` costs: the same job through it and through bare horovodrun, in pairs."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GOAL = 0.98
PAIRS = 8
"""An even number, so that each way is the first of a pair as often as the other."""

TRAINING_SECONDS = 10.0
"""So long each job is made to train; shorter ones measure the noise of a shared machine."""

SHORTEST_SECONDS = 8.0
FIRST_EPOCHS = 15

JOB_ARGUMENTS = "--width 4096 --batch 1438"
"""A model whose steps are work for the processor: those of a small one are mostly waiting for the other rank."""


@dataclass(frozen=True)
class Pair:
    """
    The same job both ways, one after the other.

    Attributes:
        order: Which way was first: `run` or `bare`.
        run_throughput: Samples a second through `deeplearning run`, as the job itself measured.
        bare_throughput: The same through bare horovodrun.
        run_seconds: From the start of the command to its end.
        bare_seconds: The same through bare horovodrun.
        run_cpu_seconds: CPU time of all ranks while they trained, through `deeplearning run`.
        bare_cpu_seconds: The same through bare horovodrun.
    """

    order: str
    run_throughput: float
    bare_throughput: float
    run_seconds: float
    bare_seconds: float
    run_cpu_seconds: float
    bare_cpu_seconds: float

    @property
    def efficiency(self) -> float:
        """Throughput through `deeplearning run` over that of bare horovodrun."""
        return self.run_throughput / self.bare_throughput

    @property
    def cpu_efficiency(self) -> float:
        """CPU time of the ranks of bare horovodrun over that through `deeplearning run`: a steadier figure."""
        return self.bare_cpu_seconds / self.run_cpu_seconds

    @property
    def wall_ratio(self) -> float:
        """Time of the whole command over that of bare horovodrun: what starting through it costs, too."""
        return self.run_seconds / self.bare_seconds


def order_ways(pairs: int) -> Iterator[tuple[str, str]]:
    """Order the ways of each pair, turned around from pair to pair: what drifts with time favours neither."""
    for number in range(pairs):
        yield ("run", "bare") if number % 2 == 0 else ("bare", "run")


def count_epochs(samples_per_second: float, samples: int) -> int:
    """
    Return how many epochs make a job long enough to be measured.

    Args:
        samples_per_second: How fast a short job trained.
        samples: Samples of an epoch.
    """
    return math.ceil(TRAINING_SECONDS * samples_per_second / samples)


def find_medians(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the median efficiency by throughput, and by CPU time."""
    return statistics.median(p.efficiency for p in pairs), statistics.median(p.cpu_efficiency for p in pairs)
