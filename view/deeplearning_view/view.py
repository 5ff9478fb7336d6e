"""View of a cluster, for pages and programs."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["forming", "formed", "failed", "stopped", "deleted"]
SearchStage = Literal["asking", "leaving", "resting", "found", "none"]


@dataclass(frozen=True)
class LogExcerpt:
    """Log line that explains a problem: time (UTC), level and message."""

    at: str
    level: str
    message: str


@dataclass(frozen=True)
class NodeView:
    """Node of a cluster. Attributes: name: Host name, as `deeplearning-worker2`; empty for one that is no member.
    role: `master` or `worker`.
    instance_id: EC2 instance id.
    instance_type: EC2 instance type.
    address: Private IPv4 address; empty when it has none.
    zone: Availability zone.
    image_id: AMI id.
    lifecycle: State in EC2 and in its group: `pending`, `running, InService`, `terminated`.
    purchase: `on-demand`, `spot` or `capacity-block`.
    phase: Progress: `formed`, `joined`, the current step, or `failed`.
    gpu_count: Number of GPUs that it measured; None before it joined.
    launched_at: Launch time, UTC.
    age_seconds: Time since its launch, also after its end, whose time is not known.
    """

    name: str
    role: str
    instance_id: str
    instance_type: str = ""
    address: str = ""
    zone: str = ""
    image_id: str = ""
    lifecycle: str = ""
    purchase: str = "on-demand"
    phase: str = ""
    gpu_count: int | None = None
    launched_at: str = ""
    age_seconds: int = 0

    @property
    def is_gone(self) -> bool:
        """True if EC2 has terminated it, or is terminating it."""
        return self.lifecycle.startswith(("terminated", "shutting-down", "stopp"))


@dataclass(frozen=True)
class Problem:
    """
    Something that failed.

    Attributes:
        what: Subject of the failure: `stack`, a node, a group.
        cause: Cause, in the words of the program or service that reported it.
        remedy: Remedy; commands that are too long for its sentence follow, one per line.
        is_past: True if the cluster has recovered from it.
        lines: Last log lines of the failed node or function.
    """

    what: str
    cause: str
    remedy: str
    is_past: bool = False
    lines: tuple[LogExcerpt, ...] = ()


@dataclass(frozen=True)
class AttemptView:
    """
    Candidate that gave too little capacity.

    Attributes:
        candidate: Value of its candidate tag.
        words: Its instance type, zone and purchase.
        launched: Workers that launched.
        requested: Requested workers.
        kind: Kind of the failed launch that ended it.
        began: Time from which it was asked, UTC.
        ended: Time from which it was left, UTC.
    """

    candidate: str
    words: str
    launched: int
    requested: int
    kind: str
    began: str
    ended: str


@dataclass(frozen=True)
class CapacityView:
    """
    Capacity of a cluster with further candidates, and the search for it.

    Attributes:
        stage: `asking`, `leaving` or `resting` during the search; `found`, or `none` when it failed.
        candidate: Value of the tag of the candidate that the cluster has, asks, leaves or asked last.
        words: Its instance type, zone and purchase.
        position: Its place in the order, from 1; 0 when the order has it no longer, or was not read.
        count: Number of candidates; 0 when it was not read.
        launched: Workers that launched; while the candidate is left, its nodes that are not gone yet.
        requested: Requested workers.
        since: Start of the stage, UTC; empty after the search, and before the candidate's request is applied.
        until: End of the candidate's patience, or of the rest, UTC; empty in other stages.
        then: What follows: the next candidate's words, `every candidate rests` or `the search is over`.
        attempts: Candidates that gave too little, the oldest first.
    """

    stage: SearchStage
    candidate: str
    words: str
    position: int = 0
    count: int = 0
    launched: int = 0
    requested: int = 0
    since: str = ""
    until: str = ""
    then: str = ""
    attempts: tuple[AttemptView, ...] = ()


@dataclass(frozen=True)
class ClusterView:
    """
    A cluster.

    Attributes:
        stack: Name of the stack.
        region: Its region.
        stack_status: Its status.
        verdict: `forming`, `formed`, `failed`, `stopped` (on purpose, no node) or `deleted`.
        cluster: The cluster's name; empty after the deletion of its groups.
        phase: Phase of the state item; empty without one.
        generation: Generation of the membership; 0 without one.
        formed: Members, master included.
        asked: Desired nodes, master included.
        since: Start of the verdict, UTC; empty if it is not known.
        reason: Cause of a cluster that is smaller than desired, or has failed; else empty.
        notice: Cause of an early end of the capacity; else empty.
        nodes: The nodes, members first in rank order.
        problems: Failures, the likeliest cause first.
        warnings: Warnings that need attention without a failure.
        log_in: Commands that log in to the master.
        provisioning: Data and software that are still being provisioned.
        unread: Reads that failed.
        looked_at: Time of the reads, UTC.
        capacity: The candidate that it has or asks; None without further candidates.
        waiting: Capacity Block for which its workers wait, or why they never come; else empty.
    """

    stack: str
    region: str
    stack_status: str
    verdict: Verdict
    cluster: str = ""
    phase: str = ""
    generation: int = 0
    formed: int = 0
    asked: int = 0
    since: str = ""
    reason: str = ""
    notice: str = ""
    nodes: tuple[NodeView, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    log_in: tuple[str, ...] = ()
    unread: tuple[str, ...] = field(default=())
    looked_at: str = ""
    provisioning: tuple[str, ...] = ()
    capacity: CapacityView | None = None
    waiting: str = ""

    @property
    def has_ended(self) -> bool:
        """True if its formation has ended, with success or failure."""
        return self.verdict != "forming"

    def to_document(self) -> dict[str, Any]:
        """
        Return the JSON object, without `capacity` for one candidate, and without `waiting` for workers that do not.

        Keys are added, never renamed.
        """
        document = asdict(self)
        for name in ("capacity", "waiting"):
            if not document[name]:
                del document[name]
        return document
