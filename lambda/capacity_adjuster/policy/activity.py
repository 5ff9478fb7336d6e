"""Scaling activity of a group, with the meaning of its status and message."""

import re
from dataclasses import dataclass

TERMINAL_STATUS = frozenset({"Successful", "Failed", "Cancelled"})
_DIED = re.compile(r"became unhealthy while waiting|was abandoned: lifecycle action", re.IGNORECASE)
"""
Message of a launch that Auto Scaling cancelled because its instance ended before it was in service: EC2 could not
start it (aws-samples/eks-workshop-v2, troubleshooting/workernodes/one), or a lifecycle hook refused it (Auto Scaling
user guide, "Troubleshoot issues"). A launch that a user or a scale-in cancelled has another message.
"""
_HEALTH_CHECK = re.compile(
    r"taken out of service in response to [^.]*(health[ -]?check|status checks? )[^.]*", re.IGNORECASE
)
"""Message of Auto Scaling for every kind of check: EC2's two, EBS's, a load balancer's and the user's."""


@dataclass(frozen=True)
class Activity:
    """Scaling activity of a group."""

    activity_id: str
    kind: str  # `launch`, `terminate` or `other`
    status: str  # Auto Scaling's status code
    start: float  # Start in seconds since the epoch
    end: float | None = None  # End in seconds since the epoch; None while it runs
    message: str = ""  # Auto Scaling's status message with the cause of a failure
    zone: str = ""  # Availability zone; empty when unknown
    instance_id: str = ""  # Instance id; empty when unknown
    cause: str = ""  # Auto Scaling's description of its cause

    @property
    def is_in_progress(self) -> bool:
        """True while it runs, or its status is unknown."""
        return self.status not in TERMINAL_STATUS

    @property
    def is_failed_launch(self) -> bool:
        """True for a failed launch."""
        return self.kind == "launch" and (self.status == "Failed" or self.is_early_death)

    @property
    def is_early_death(self) -> bool:
        """True for a launch whose instance ended before it was in service."""
        return self.kind == "launch" and self.status == "Cancelled" and _DIED.search(self.message) is not None

    @property
    def is_loss(self) -> bool:
        """True for the termination of an instance in service after a failed health check."""
        return self.kind == "terminate" and bool(self.instance_id and self.loss_words)

    @property
    def loss_words(self) -> str:
        """Auto Scaling's message on the failed health check; empty without one."""
        found = _HEALTH_CHECK.search(self.cause)
        return found.group().rstrip(".") if found else ""

    @property
    def last_moment(self) -> float:
        """Latest possible end in seconds since the epoch: Auto Scaling truncates ends to whole seconds."""
        return self.start if self.end is None else max(self.start, self.end + 1)
