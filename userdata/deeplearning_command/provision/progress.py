"""Progress of provisioning steps, for users."""

import sys
from collections.abc import Callable
from typing import TextIO

from deeplearning_node.deadline import Clock
from deeplearning_node.provision_status import RUNNING, Step
from deeplearning_provision.disk import render_bytes

LINE_SECONDS = 10.0
"""Pause between two lines of progress if lines cannot be rewritten."""
REWRITE_SECONDS = 1.0
MINUTE, HOUR = 60, 3600


class Progress:
    """Progress of steps on a stream: one rewritten line on a terminal, elsewhere a line at intervals."""

    def __init__(self, clock: Clock, describe: Callable[[str, Step], str], stream: TextIO | None = None) -> None:
        """Bind a stream; `describe` returns the line of a step and its name. Default: standard error."""
        self._clock = clock
        self._describe = describe
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._shown: dict[str, tuple[str, float]] = {}
        self._is_open = False

    def report(self, name: str, step: Step) -> None:
        """Print a step when its state or detail changes, and its progress at intervals."""
        now = self._clock.read()
        state, at = self._shown.get(name, ("", float("-inf")))
        found = f"{step.state} {step.detail}"
        pause = REWRITE_SECONDS if self._is_terminal else LINE_SECONDS
        if found == state and (step.total == 0 or now - at < pause):
            return
        self._shown[name] = (found, now)
        text = self._describe(name, step).replace("\n", " ")
        is_moving = self._is_terminal and found == state
        self._stream.write(f"\r\033[K{text}" if is_moving else f"{self._end_line()}{text}\n")
        self._stream.flush()
        self._is_open = is_moving

    def finish(self) -> None:
        """End the line that is being rewritten."""
        self._stream.write(self._end_line())
        self._is_open = False

    def _end_line(self) -> str:
        return "\n" if self._is_open else ""


def describe_progress(step: Step) -> str:
    """Return the completed share of a step, its rate and its remaining time; empty when unknown."""
    if step.unit != "bytes" or not step.total:
        return ""
    share = f"{100 * step.done // step.total}% of {render_bytes(step.total)}"
    left = estimate_seconds(step)
    if step.state != RUNNING or left is None:
        return share
    return f"{share}, {render_bytes(step.rate)}/s, {render_seconds(left)} left"


def estimate_seconds(step: Step) -> int | None:
    """Return the remaining seconds at the current rate; None when unknown."""
    if step.state != RUNNING or step.rate <= 0 or not step.total:
        return None
    return round(max(0, step.total - step.done) / step.rate)


def render_seconds(seconds: int) -> str:
    """Return a duration for users."""
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min {seconds % MINUTE} s"
    return f"{seconds // HOUR} h {seconds % HOUR // MINUTE} min"
