"""
The seconds of nodes that somebody pays for, by what they went into.

EC2 bills an instance while its state is `running` (Amazon EC2 User Guide, "Amazon EC2 instance state changes"), so one
that has lost its power costs money until EC2 ends it. The minute that EC2 bills at least is left out.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cdk_rehearsal.run.timeline import Event, Span

SET_UP, WAITING, DATA, SOFTWARE = "set-up", "waiting for nodes", "data", "software"
STARTING, TRAINING, DETECTION, RESTART, REPLAY = "starting the job", "training", "detection", "restart", "replay"
UPLOAD, NO_JOB = "upload", "no job"
CAUSES = (SET_UP, WAITING, DATA, SOFTWARE, STARTING, TRAINING, DETECTION, RESTART, REPLAY, UPLOAD, NO_JOB)
_IS_SET_UP = re.compile(r"run the set-up script: done.*")
_IS_MEMBER = re.compile(r"install generation [0-9]+: done.*|node is Ready")
"""The second is of a node of Kubernetes."""
_IS_BROUGHT = re.compile(r"(data:\S+|environment) is (?:done|failed).*")


@dataclass(frozen=True)
class PaidNode:
    """
    A node, with moments in seconds since the rehearsal began; infinite where they did not come.

    Attributes:
        launched: The beginning of its bill.
        ended: Its end.
        died: It lost its power.
        set_up: It could join.
        joined: It was a member.
        brought: Step of what jobs need -> when that had come.
    """

    launched: float
    ended: float
    died: float = math.inf
    set_up: float = math.inf
    joined: float = math.inf
    brought: Mapping[str, float] = field(default_factory=dict)

    def find_cause(self, moment: float, job: Sequence[Span]) -> str:
        """Return what its time goes into from a moment on."""
        if moment >= self.died:
            return DETECTION
        if moment < self.set_up:
            return SET_UP
        if moment < self.joined:
            return WAITING
        late = [step for step, at in self.brought.items() if moment < at]
        if late:
            return DATA if any(step.startswith("data:") for step in late) else SOFTWARE
        return next((span.name for span in job if span.start <= moment < span.start + span.seconds), NO_JOB)

    def list_moments(self) -> Iterable[float]:
        """Return the moments at which its time may go into something else."""
        return (self.launched, self.ended, self.died, self.set_up, self.joined, *self.brought.values())


def read_node(launched: float, ended: float, died: float, events: Iterable[Event]) -> PaidNode:
    """Return a node, given the lines of its agent: of what may come twice the first counts."""
    set_up = joined = math.inf
    brought: dict[str, float] = {}
    for event in events:
        if _IS_SET_UP.fullmatch(event.text):
            set_up = min(set_up, event.at)
        elif _IS_MEMBER.fullmatch(event.text):
            joined = min(joined, event.at)
        elif found := _IS_BROUGHT.fullmatch(event.text):
            brought.setdefault(found[1], event.at)
    return PaidNode(launched, ended, died, min(set_up, joined), joined, brought)


def reckon(nodes: Iterable[PaidNode], job: Sequence[Span]) -> Mapping[str, float]:
    """
    Return cause -> seconds of all nodes.

    Args:
        nodes: The nodes.
        job: What the job did, each span with its cause as name.
    """
    seconds = dict.fromkeys(CAUSES, 0.0)
    edges = [edge for span in job for edge in (span.start, span.start + span.seconds)]
    for node in nodes:
        moments = sorted({at for at in (*node.list_moments(), *edges) if node.launched <= at <= node.ended})
        for begin, end in pairwise(moments):
            seconds[node.find_cause(begin, job)] += end - begin
    return seconds
