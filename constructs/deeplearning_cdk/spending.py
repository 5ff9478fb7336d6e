"""What a user lets a cluster cost: when it stops by itself, and the budget that watches it."""

from dataclasses import dataclass

from aws_cdk import Duration, Token

_SHORTEST_IDLE_MINUTES, _LONGEST_DAYS = 10, 365


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

    stop_when_idle: Duration | None = None
    stop_after: Duration | None = None
    monthly_budget_usd: float | None = None
    budget_stops: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _check_time("stop_when_idle", self.stop_when_idle)
        _check_time("stop_after", self.stop_after)
        budget = self.monthly_budget_usd
        if budget is not None and not Token.is_unresolved(budget) and not budget > 0:
            raise ValueError(f"monthly_budget_usd must be more than 0, got {budget:g}; leave it out for no budget")
        if self.budget_stops and budget is None:
            raise ValueError("monthly_budget_usd must be given with budget_stops, got none; say what a month may cost")

    @property
    def has_end(self) -> bool:
        """Whether anything stops the cluster by itself."""
        return self.stop_when_idle is not None or self.stop_after is not None or self.budget_stops


def _check_time(prop: str, time: Duration | None) -> None:
    if time is None:
        return
    minutes = time.to_minutes(integral=False)
    if not _SHORTEST_IDLE_MINUTES <= minutes <= _LONGEST_DAYS * 24 * 60:
        raise ValueError(
            f"{prop} must be from {_SHORTEST_IDLE_MINUTES} minutes to {_LONGEST_DAYS} days, got {minutes:g} minutes; "
            "leave it out to never stop"
        )


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
