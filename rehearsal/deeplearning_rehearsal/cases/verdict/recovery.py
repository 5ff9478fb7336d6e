"""How training went on after a fault: when, with how many ranks, and what it lost."""

from collections.abc import Sequence
from dataclasses import dataclass

from deeplearning_rehearsal.cases.verdict.elastic_progress import Step


@dataclass(frozen=True)
class Recovery:
    """
    What the progress tells about one fault.

    Attributes:
        seconds: From the fault to the first progress beyond the last commit before it, made by a new world of ranks;
            None when there was none.
        lost_commits: Commits before the fault that the new world did not go on from; None when there is no new world.
        size_before: Ranks before the fault.
        sizes_after: Ranks of the worlds after it, in order.
    """

    seconds: float | None
    lost_commits: int | None
    size_before: int
    sizes_after: tuple[int, ...]

    @property
    def has_regained_size(self) -> bool:
        """Whether a later world had all ranks again, after a smaller one or at once."""
        return self.size_before > 0 and self.size_before in self.sizes_after


def measure_recovery(steps: Sequence[Step], epoch: float) -> Recovery:
    """
    Measure what a fault did to training.

    Args:
        steps: The progress, oldest first.
        epoch: Wall-clock time of the fault, in seconds.
    """
    worlds = [index for index, step in enumerate(steps) if step.time >= epoch and step.event in {"start", "reset"}]
    before = [step for step in steps if step.time < epoch]
    size = before[-1].size if before else 0
    sizes = tuple(steps[index].size for index in worlds)
    if not worlds:
        return Recovery(None, None, size, sizes)
    committed = [step.batch for step in steps[: worlds[0]] if step.event == "commit"]
    last = committed[-1] if committed else 0
    gained = next((step for step in steps[worlds[0] :] if step.event in {"commit", "done"} and step.batch > last), None)
    resumed = steps[worlds[0]].batch
    lost = len({batch for batch in committed if batch > resumed})
    return Recovery(None if gained is None else gained.time - epoch, lost, size, sizes)
