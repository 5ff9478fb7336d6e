"""The end of user data, and what its output says of limits of the lab."""

import re
import time
from collections.abc import Iterator

from cdk_rehearsal.embedded_aws.base.stack_record import StackOutcome
from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.run.fleet import Fleet

_POLL_SECONDS = 1.0
_GRACE_SECONDS = 15.0
"""For a service that user data has started, and that signals when it is ready."""
_LAST_LINES = 3
_ENDED = re.compile(r"^Cloud-init v.* finished at ", re.MULTILINE)
_LIMITS = (
    (
        re.compile(r"Unable to locate package (\S+)|Package '?([^' ]+)'? has no installation candidate"),
        "the archive of the rehearsal has no package {}; --apt {} adds it where Debian has it",
    ),
    (
        re.compile(r"No match for argument: (\S+)"),
        "dnf of the rehearsal has no package {}, which Amazon Linux may have",
    ),
    (
        re.compile(r"/opt/aws/bin/(cfn-init|cfn-hup|cfn-get-metadata): No such file or directory"),
        "{} is not in the rehearsal, which the images of Amazon Linux have",
    ),
    (
        re.compile(r"[0-9]+: ([^\s:]+): (?:command )?not found"),
        "the rehearsal's Debian has no program {}, which the image of the template may have",
    ),
    (
        re.compile(
            r"Could not resolve host: ([^\s;]+)|unable to resolve host address .([^'\u2019\s]+)"
            r"|host='([^']+)'.*Failed to establish a new connection"
        ),
        "there is no {} in the rehearsal: its machines reach AWS's APIs by AWS_ENDPOINT_URL, and no Internet",
    ),
)
"""Lines of programs for want of something that the lab lacks, and the text for the report."""


def find_limit(line: str) -> str:
    """Return the limit of the lab that a machine met with a line; empty for none."""
    for pattern, text in _LIMITS:
        if match := pattern.search(line):
            name = next(group for group in match.groups() if group)
            return text.format(name, name)
    return ""


def list_limits(fleet: Fleet) -> tuple[str, ...]:
    """Return limits of the lab that the machines ran into, each once."""
    names = [machine.instance_id for machine in fleet.launched()]
    # The log itself has lines that nobody has followed yet; that of a machine which is no more was followed.
    lines = (line for name in names for line in fleet.read_log(name).splitlines() or fleet.lines(name))
    return tuple(dict.fromkeys(filter(None, map(find_limit, lines))))


def await_stack(aws: EmbeddedAws, fleet: Fleet, deadline: float) -> StackOutcome:
    """
    Wait for the end of the stack that was deployed last, up to a monotonic time, and return its outcome.

    A stack that waits for signals fails once the user data of every instance has ended without one, and nothing came
    for a while after; on AWS it would fail when the time of its policy is over.
    """
    ended_at: float | None = None
    signalled_at = fleet.last_signal_at
    while (left := deadline - time.monotonic()) > 0:
        outcome = aws.wait(min(_POLL_SECONDS, left))
        if not outcome.status.endswith("_IN_PROGRESS"):
            return outcome
        machines = fleet.machines()
        if not machines or not aws.awaits_signals() or not all(_has_ended(fleet, each) for each in machines):
            ended_at = None
        elif ended_at is None or fleet.last_signal_at != signalled_at:
            ended_at, signalled_at = time.monotonic(), fleet.last_signal_at
        elif time.monotonic() - ended_at > _GRACE_SECONDS:
            aws.give_up_signals("; ".join(_describe_silence(fleet, machines)))
    return aws.wait(0)


def _has_ended(fleet: Fleet, machine: Machine) -> bool:
    return _ENDED.search(fleet.read_log(machine.instance_id)) is not None


def _describe_silence(fleet: Fleet, machines: tuple[Machine, ...]) -> Iterator[str]:
    yield "signals are missing, and the user data of every instance has ended"
    ends: dict[str, list[str]] = {}
    for machine in machines:
        lines = [line for line in fleet.lines(machine.instance_id) if line.strip()][-_LAST_LINES:]
        ends.setdefault(" | ".join(lines) or "none", []).append(machine.instance_id)
    yield from (f"the last lines of {' and '.join(names)}: {end}" for end, names in ends.items())
