"""A scaling activity of a group, and what its status and its words mean."""

import re
from dataclasses import dataclass

TERMINAL_STATUS = frozenset({"Successful", "Failed", "Cancelled"})
_DIED = re.compile(r"became unhealthy while waiting|was abandoned: lifecycle action", re.IGNORECASE)
"""
The words of a launch that Auto Scaling cancelled because its instance ended before it was in service: EC2 could not
start it (aws-samples/eks-workshop-v2, troubleshooting/workernodes/one), or a lifecycle hook refused it (Auto Scaling
user guide, "Troubleshoot issues"). A launch that a user or a scale-in cancelled has none of them.
"""
_HEALTH_CHECK = re.compile(
    r"taken out of service in response to [^.]*(health[ -]?check|status checks? )[^.]*", re.IGNORECASE
)
"""Auto Scaling's words for every kind of check: EC2's two, EBS's, a load balancer's and the user's."""


@dataclass(frozen=True)
class Activity:
    """A scaling activity of a group."""

    activity_id: str
    kind: str  # `launch`, `terminate` or `other`
    status: str  # Auto Scaling's status code
    start: float  # When it began, seconds since the epoch
    end: float | None = None  # When it ended, the same; None while it runs
    message: str = ""  # Auto Scaling's status message; why it failed
    zone: str = ""  # Availability zone; empty when Auto Scaling did not say
    instance_id: str = ""  # Instance that it is about; empty when Auto Scaling did not say
    cause: str = ""  # Auto Scaling's words for why it began

    @property
    def is_in_progress(self) -> bool:
        """Whether it still runs, as far as its status is known."""
        return self.status not in TERMINAL_STATUS

    @property
    def is_failed_launch(self) -> bool:
        """Whether it was a launch that failed."""
        return self.kind == "launch" and (self.status == "Failed" or self.is_early_death)

    @property
    def is_early_death(self) -> bool:
        """Whether it was a launch whose instance ended before it was in service."""
        return self.kind == "launch" and self.status == "Cancelled" and _DIED.search(self.message) is not None

    @property
    def is_loss(self) -> bool:
        """Whether it terminates an instance that was in service and that a health check found dead or ill."""
        return self.kind == "terminate" and bool(self.instance_id and self.loss_words)

    @property
    def loss_words(self) -> str:
        """Auto Scaling's words for the health check that it answers; empty when it answers none."""
        found = _HEALTH_CHECK.search(self.cause)
        return found.group().rstrip(".") if found else ""

    @property
    def last_moment(self) -> float:
        """When it may last have run, seconds since the epoch: Auto Scaling tells ends in whole seconds, cut off."""
        return self.start if self.end is None else max(self.start, self.end + 1)
