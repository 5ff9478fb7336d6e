"""Carries a step to its end: what passes is tried again, what does not is said."""

import logging
from collections.abc import Callable
from enum import IntEnum

from deeplearning_node.deadline import Clock
from deeplearning_node.failure import StageFailure
from deeplearning_provision.status import Status

LOG = logging.getLogger(__name__)
TRIES = 5
FIRST_PAUSE_SECONDS = 15.0
LONGEST_PAUSE_SECONDS = 120.0


class ProvisionFailure(StageFailure):
    """
    A step ended without its result.

    Attributes:
        is_final: Whether trying again is of no use until somebody mends the cause.
    """

    def __init__(self, cause: str, remedy: str, *, is_final: bool = True, output: str = "") -> None:
        """
        Describe the failure.

        Args:
            cause: What was found, in one line.
            remedy: What the user can do, in one line.
            is_final: Whether trying again is of no use. Default: it is of none.
            output: What a program last wrote. Default: nothing.
        """
        super().__init__(cause, remedy, output=output)
        self.is_final = is_final


class WrongContentError(ProvisionFailure):
    """The content of a source is refused; the same content always will be."""


class Outcome(IntEnum):
    """How a step ended; the value is the exit status of a process that it decides."""

    DONE = 0
    FAILED = 1
    """Somebody must mend something."""
    INTERRUPTED = 75
    """`EX_TEMPFAIL` of sysexits.h: the service is started again."""


def join_outcomes(outcomes: "list[Outcome]") -> Outcome:
    """Return how several steps ended together: what can still be done decides, then what failed."""
    return max(outcomes, default=Outcome.DONE)


def settle_step(status: Status, name: str, action: Callable[[], str], clock: Clock, tries: int = TRIES) -> Outcome:
    """
    Run a step until it is done or failed for good, a few times.

    Effects: the step's state in the status file.

    Args:
        status: Where the step is written.
        name: Of the step.
        action: Does it, and says in one line what is there now; it must be safe to repeat.
        clock: Measures the pauses.
        tries: How often a failure that may pass is tried again. Default: five, with up to two minutes between them.

    Returns:
        How it ended; whatever went wrong is in the status.
    """
    pause = FIRST_PAUSE_SECONDS
    for number in range(1, tries + 1):
        try:
            status.finish(name, action())
        except Exception as error:  # noqa: PERF203 - each is shown to the user; none may end the other steps
            detail = describe_failure(error)
            is_final = getattr(error, "is_final", False)
            LOG.warning("%s, attempt %d of %d: %s", name, number, tries, detail, exc_info=not is_final)
            status.fail(name, detail, is_final=is_final)
            if is_final:
                return Outcome.FAILED
            if number < tries:
                clock.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        else:
            return Outcome.DONE
    return Outcome.INTERRUPTED


def describe_failure(error: Exception) -> str:
    """
    Return one line: the cause, the remedy, and the end of what a program wrote.

    Whoever parts them takes what follows the last semicolon for the remedy, which has none here.
    """
    if not isinstance(error, StageFailure):
        return f"{type(error).__name__}: {error}"
    lines = [line.strip() for line in error.output.splitlines() if line.strip()]
    tail = f"; last lines: {' | '.join(lines[-3:])}" if lines else ""
    remedy = error.remedy.replace("; ", ", ")
    return (f"{error.cause}; {remedy}" if remedy else error.cause) + tail
