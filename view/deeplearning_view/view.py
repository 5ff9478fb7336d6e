"""The view of a cluster, for pages and programs."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["forming", "formed", "failed", "stopped", "deleted"]


@dataclass(frozen=True)
class LogExcerpt:
    """A log line that explains a problem: its time (UTC), level and message."""

    at: str
    level: str
    message: str


@dataclass(frozen=True)
class NodeView:
    """
    A node.

    Attributes:
        name: Host name, as `deeplearning-worker2`; empty for one that is no member.
        role: `master` or `worker`.
        instance_id: EC2 instance id.
        instance_type: EC2 instance type.
        address: Private IPv4 address; empty when it has none.
        zone: Availability zone.
        image_id: AMI id.
        lifecycle: What EC2 and its group say: `pending`, `running, InService`, `terminated`.
        purchase: `on-demand`, `spot` or `capacity-block`.
        phase: How far it is: `formed`, `joined`, the step that it is at, or `failed`.
        gpu_count: GPUs that it measured; None before it joined.
        launched_at: When it was launched, UTC.
        age_seconds: Time since then; until its end for one that has ended is not known, so since its launch.
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
        """Whether EC2 has ended it, or is about to."""
        return self.lifecycle.startswith(("terminated", "shutting-down", "stopp"))


@dataclass(frozen=True)
class Problem:
    """
    Something that failed.

    Attributes:
        what: What failed: `stack`, a node, a group.
        cause: Why, in the words of the program or service that reported it.
        remedy: What to do; commands that are too long for its sentence follow, a line each.
        is_past: Whether the cluster has recovered from it.
        lines: The last log lines of the node or function that failed.
    """

    what: str
    cause: str
    remedy: str
    is_past: bool = False
    lines: tuple[LogExcerpt, ...] = ()


@dataclass(frozen=True)
class ClusterView:
    """
    A cluster.

    Attributes:
        stack: Name of the stack.
        region: Its region.
        stack_status: Its status.
        verdict: `forming`, `formed`, `failed`, `stopped` (on purpose, no node) or `deleted`.
        cluster: The cluster's name; empty when its groups are gone.
        phase: Phase of the state item; empty without one.
        generation: Generation of the membership; 0 without one.
        formed: Members, master included.
        asked: Nodes asked for, master included.
        since: Since when the verdict holds, UTC; empty when it is not known.
        reason: Why the cluster is smaller than asked for, or failed; else empty.
        notice: Why the capacity ends soon; else empty.
        nodes: The nodes, members first in rank order.
        problems: What failed, the likeliest cause first.
        warnings: What needs attention, though nothing failed.
        log_in: Commands that log in on the master.
        provisioning: Data and software that are still being provisioned.
        unread: What could not be read.
        looked_at: When, UTC.
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

    @property
    def has_ended(self) -> bool:
        """Whether its formation has ended, one way or the other."""
        return self.verdict != "forming"

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object; keys are added, never renamed."""
        return asdict(self)
