"""The kinds of decision, as values: what a look at the cluster can lead to."""

from dataclasses import dataclass, field

from capacity_adjuster.policy.breaker import Rearm, Remember, Trip
from capacity_adjuster.policy.shrink_record import Adjustment
from deeplearning_contract.cluster_state import ClusterState


@dataclass(frozen=True)
class Wait:
    """
    Do nothing now.

    Attributes:
        why: What is waited for.
        seconds: When to look again, where that is known; 0 where it is not. No part of what is decided.
    """

    why: str
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Resume:
    """Resume what a shrink suspended whose invocation has died."""

    adjustment: Adjustment


@dataclass(frozen=True)
class Shrink:
    """
    Lower the workers' desired capacity to what launched.

    Attributes:
        group: Name of the workers' group.
        desired: Its desired capacity.
        launched: Ids of the workers that launched.
        requested: Workers asked for.
        reason: Why fewer launched.
        processes: Processes to suspend, those that nobody has suspended; no part of what is decided.
    """

    group: str
    desired: int
    launched: tuple[str, ...]
    requested: int
    reason: str
    processes: tuple[str, ...] = field(compare=False)


@dataclass(frozen=True)
class Verdict:
    """Write the state item; when it says `failed`, signal the failure first."""

    state: ClusterState


Decision = Wait | Resume | Shrink | Verdict | Trip | Rearm | Remember
