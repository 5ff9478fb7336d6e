"""The state of one target, from the outcomes of its health checks."""

from dataclasses import dataclass
from typing import Literal

from cdk_rehearsal.embedded_aws.balancing.probe import Failure

_FIRST = Failure("Elb.InitialHealthChecking", "Initial health checks in progress")
State = Literal["initial", "healthy", "unhealthy"]


@dataclass
class TargetState:
    """
    State of a target.

    A new target is healthy after one passed check, one that was unhealthy after as many as the threshold says; a target
    is unhealthy after as many failures in a row as the other threshold says (Application Load Balancer user guide,
    "Health checks for your target groups").
    """

    healthy_threshold: int
    unhealthy_threshold: int
    state: State = "initial"
    failure: Failure = _FIRST
    run: int = 0  # outcomes in a row: positive for passed checks, negative for failed ones

    def take(self, failure: Failure | None) -> bool:
        """Take the outcome of a check; return whether the state is another one now."""
        before = self.state
        if failure is None:
            self.run = max(self.run, 0) + 1
            if self.state == "initial" or self.run >= self.healthy_threshold:
                self.state = "healthy"
        else:
            self.run = min(self.run, 0) - 1
            if -self.run >= self.unhealthy_threshold:
                self.state, self.failure = "unhealthy", failure
        return self.state != before
