"""What a user lets a cluster cost: when it stops by itself, and the budget that watches it."""

from dataclasses import dataclass
from typing import Annotated

from aws_cdk import Duration

from deeplearning_cdk.props.check import check_fields
from deeplearning_cdk.props.rules import between, lasting

StopTime = Annotated[Duration, lasting(Duration.minutes(10), Duration.days(365), "leave it out to never stop")]
"""After how long a cluster stops by itself."""

Budget = Annotated[float, between(0.01, 1e9, "leave it out for no budget", unit="dollars", takes_tokens=True)]
"""What a month may cost, in US dollars."""


@dataclass(frozen=True, kw_only=True)
class Spending:
    """
    When a cluster stops by itself, which sets both groups to zero nodes and keeps everything else.

    Attributes:
        stop_when_idle: Stop when no node has been busy for so long. Default: never.
        stop_after: Stop so long after the stack's creation, whatever runs. Default: never.
        monthly_budget_usd: Costs of a month, in US dollars, that the user is told about. Default: no budget.
        budget_stops: Stop the cluster when the month's budget is used up; needs `monthly_budget_usd`. Default: only
            tell.

    Raises:
        ValueError: A time is too short or too long, or the budget is not a sum.
    """

    stop_when_idle: StopTime | None = None
    stop_after: StopTime | None = None
    monthly_budget_usd: Budget | None = None
    budget_stops: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_fields(self)
        if self.budget_stops and self.monthly_budget_usd is None:
            raise ValueError("monthly_budget_usd must be given with budget_stops, got none; say what a month may cost")

    @property
    def has_end(self) -> bool:
        """Whether anything stops the cluster by itself."""
        return self.stop_when_idle is not None or self.stop_after is not None or self.budget_stops


def check_spending(spending: Spending, setup_timeout: Duration) -> Spending:
    """
    Check that a cluster is not stopped while its stack still waits for it.

    Args:
        spending: When the cluster stops.
        setup_timeout: How long the stack waits.

    Raises:
        ValueError: It would be.
    """
    if spending.stop_after is not None and spending.stop_after.to_seconds() <= setup_timeout.to_seconds():
        raise ValueError(
            f"stop_after must be more than setup_timeout ({setup_timeout.to_minutes(integral=False):g} minutes), got "
            f"{spending.stop_after.to_minutes(integral=False):g} minutes; a cluster that stops while it forms fails "
            "its stack, so shorten setup_timeout or stop later"
        )
    return spending


NO_LIMIT = Spending()
"""Nothing stops the cluster but its user."""
