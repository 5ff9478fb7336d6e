"""What a reconciliation acts on, as protocols: AWS in the Lambda, a model in the tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.breaker import Breaker
from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.requested_capacity import Wish
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.policy.stop_record import StopRecord
from deeplearning_contract.cluster_event import ClusterEvent
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.messages import Doorbell


class Clock(Protocol):
    """Time, as an invocation has it; all in seconds."""

    def now(self) -> float:
        """Return the time since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def remaining(self) -> float:
        """Return the time until the invocation is stopped."""


class Groups(Protocol):
    """The Auto Scaling edge."""

    def find(self) -> tuple[GroupObservation, ...]:
        """Read the cluster's groups, without their activities."""

    def read_activities(self, group: str, since: float = 0.0) -> tuple[Activity, ...] | None:
        """Read the scaling activities of a group, all or at least those since a moment."""

    def suspend(self, group: str, processes: tuple[str, ...]) -> None:
        """Suspend processes of a group."""

    def resume(self, group: str, processes: tuple[str, ...]) -> None:
        """Resume processes of a group."""

    def set_desired(self, group: str, desired: int) -> None:
        """Set the desired capacity of a group."""


class Records(Protocol):
    """The DynamoDB edge."""

    def read_state(self) -> ClusterState | None:
        """Read the state item."""

    def write_state(self, state: ClusterState) -> bool:
        """Write the state item by compare-and-set."""

    def read_adjustment(self) -> Adjustment | None:
        """Read the record of the last shrink."""

    def write_adjustment(self, adjustment: Adjustment) -> bool:
        """Write the record of a shrink by compare-and-set."""

    def read_breaker(self) -> Breaker | None:
        """Read the breaker's record."""

    def write_breaker(self, breaker: Breaker) -> bool:
        """Write the breaker's record by compare-and-set."""

    def read_stop(self) -> StopRecord | None:
        """Read the record of stops."""

    def write_stop(self, record: StopRecord) -> bool:
        """Write the record of stops by compare-and-set."""

    def read_wish(self) -> Wish | None:
        """Read the record of what capacity the stack asks for."""

    def write_wish(self, wish: Wish) -> bool:
        """Write the record of what capacity the stack asks for by compare-and-set."""

    def begin_watch(self, now: float, until: float) -> bool:
        """Become the one invocation that looks closely, unless another one is."""

    def end_watch(self) -> None:
        """Let another invocation look closely."""

    def note_denial(self, now: float) -> float:
        """Remember a denied call, and return when the denials in a row began."""


@dataclass(frozen=True)
class Edges:
    """
    What a reconciliation acts on.

    Attributes:
        groups: The Auto Scaling groups.
        records: The state item, and the records of the last shrink, of the breaker and of stops.
        ring_master: Sends a doorbell to the master.
        signal_failure: Tells the stack that the cluster failed, and why.
        clock: The invocation's time.
        send_event: Tells EventBridge what became of the cluster; raises nothing.
    """

    groups: Groups
    records: Records
    ring_master: Callable[[Doorbell], None]
    signal_failure: Callable[[str], None]
    clock: Clock
    send_event: Callable[[ClusterEvent], None]
