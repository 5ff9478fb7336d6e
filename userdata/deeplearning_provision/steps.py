"""Steps of provisioning, their retries and outcomes."""

import logging
from collections.abc import Callable
from enum import IntEnum

from deeplearning_contract.reason import Reason
from deeplearning_node.deadline import Clock
from deeplearning_node.failure import StageFailure
from deeplearning_provision.status import Status

LOG = logging.getLogger(__name__)
TRIES = 5
FIRST_PAUSE_SECONDS = 15.0
LONGEST_PAUSE_SECONDS = 120.0


class ProvisionFailure(StageFailure):
    """A step failed; if that is final, a retry fails until the cause is fixed."""

    def __init__(self, cause: str, remedy: str, *, is_final: bool = True, output: str = "") -> None:
        super().__init__(cause, remedy, output=output)
        self.is_final = is_final


class WrongContentError(ProvisionFailure):
    """Content of a source that is refused, now and on every retry."""


class Outcome(IntEnum):
    """Outcome of a step, and exit status of the process."""

    DONE = 0
    FAILED = 1
    """The cause must be fixed."""
    INTERRUPTED = 75
    """`EX_TEMPFAIL` of sysexits.h; systemd restarts the service."""


def join_outcomes(outcomes: "list[Outcome]") -> Outcome:
    """Return the worst outcome of several steps."""
    return max(outcomes, default=Outcome.DONE)


def settle_step(status: Status, name: str, action: Callable[[], str], clock: Clock, tries: int = TRIES) -> Outcome:
    """
    Run a step until it is done or its failure is final, with pauses of up to two minutes.

    `action` returns one line for users; it must be safe to repeat.

    Effects: the step's state in the status file, with the cause of a failure.
    """
    pause = FIRST_PAUSE_SECONDS
    for number in range(1, tries + 1):
        try:
            status.finish(name, action())
        except Exception as error:  # noqa: PERF203 - the user sees each error; none may end the other steps
            reason = describe_failure(error)
            is_final = getattr(error, "is_final", False)
            LOG.warning("%s, attempt %d of %d: %s", name, number, tries, reason, exc_info=not is_final)
            status.fail(name, reason, is_final=is_final)
            if is_final:
                return Outcome.FAILED
            if number < tries:
                clock.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        else:
            return Outcome.DONE
    return Outcome.INTERRUPTED


def describe_failure(error: Exception) -> Reason:
    """Return the reason of a failure, with the last three lines of a program's output."""
    if not isinstance(error, StageFailure):
        return Reason(f"{type(error).__name__}: {error}")
    lines = [line.strip() for line in error.output.splitlines() if line.strip()]
    return Reason(error.cause, error.remedy, "\n".join(lines[-3:]))
