"""Judges a case: each expectation with what was found."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deeplearning_rehearsal.cases.format.case import Seen
from deeplearning_rehearsal.cases.verdict.needs_sight import ABSENT, NeedsSight
from deeplearning_rehearsal.cases.verdict.recovery import Recovery
from deeplearning_rehearsal.cases.verdict.status_page import join_lines
from deeplearning_rehearsal.report.environment_report import EnvironmentReport


@dataclass(frozen=True)
class Sight:
    """
    What was seen of a rehearsed case.

    Attributes:
        stack: Status of the stack.
        reason: The stack's reason, and the state item's.
        requested: Nodes asked for.
        formed: Nodes of the last membership.
        generation: Its generation.
        launches: Machines launched in all.
        timeline: Texts of the timeline.
        accuracy: Held-out accuracy; None without training.
        failure_seconds: From the cause to the stack's failure; None when either is missing.
        recoveries: What each injection did to the elastic job, those that it felt.
        replacements: Members that were launched after the first injection.
        is_elastic: Whether an elastic job trained.
        changed_files: Instance id -> files that changed, of nodes that were to stay the same.
        calls: AWS calls of the nodes until they formed.
        call_bound: The most that they may make; None when the cluster did not form.
        needs: What was seen of what jobs need.
        object_reads: Objects read from S3 in all.
        denials: Actions that policies denied, with what was said.
        environment: What became of the environment; None where none was declared, or nobody could say.
        status: What `deeplearning-cdk status` says.
        commands: Shell lines that the master has run -> why one did not succeed.
    """

    stack: str = ""
    reason: str = ""
    requested: int = 0
    formed: int = 0
    generation: int = 0
    launches: int = 0
    timeline: tuple[str, ...] = ()
    accuracy: float | None = None
    failure_seconds: float | None = None
    recoveries: tuple[Recovery, ...] = ()
    replacements: tuple[str, ...] = ()
    is_elastic: bool = False
    changed_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    calls: int = 0
    call_bound: int | None = None
    needs: NeedsSight = field(default_factory=NeedsSight)
    object_reads: int = 0
    denials: Mapping[str, str] = field(default_factory=dict)
    environment: EnvironmentReport | None = None
    status: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment_state(self) -> str:
        """The state of the environment; empty where nobody could say."""
        return "" if self.environment is None else self.environment.state

    @property
    def recovery_seconds(self) -> float | None:
        """The longest recovery; None when nothing was felt, or one recovery never came."""
        seconds = [recovery.seconds for recovery in self.recoveries]
        return None if not seconds or None in seconds else max(value for value in seconds if value is not None)

    @property
    def lost_commits(self) -> int | None:
        """The most commits that one fault cost; None when nothing was felt, or training never went on."""
        lost = [recovery.lost_commits for recovery in self.recoveries]
        return None if not lost or None in lost else max(value for value in lost if value is not None)


@dataclass(frozen=True)
class Finding:
    """An expectation, whether it held, and what was found."""

    expectation: str
    is_held: bool
    found: str


def judge_seen(seen: Seen, sight: Sight) -> tuple[Finding, ...]:
    """Hold what was seen against what must be."""
    findings = [judge(value, sight) for key, judge in _JUDGES.items() if (value := getattr(seen, key)) is not None]
    findings += [
        Finding(f"the reason says {text!r}", text in sight.reason, repr(sight.reason)) for text in seen.reason_contains
    ]
    findings += [
        Finding(f"the timeline says {text!r}", any(text in line for line in sight.timeline), _closest(text, sight))
        for text in seen.timeline_contains
    ]
    if seen.replacement_joins:
        findings.append(_judge_replacement(sight))
    if seen.identical_files:
        findings.append(_judge_files(sight))
    if seen.calls_within_bound:
        bound = sight.call_bound
        is_held = bound is not None and sight.calls <= bound
        findings.append(Finding(f"the nodes make at most {bound} AWS calls", is_held, str(sight.calls)))
    findings += [_judge_data(name, sight.needs) for name in seen.data_complete]
    findings += [
        Finding(f"{action} is denied", action in sight.denials, sight.denials.get(action, "it was not"))
        for action in seen.denied
    ]
    findings += [_judge_failure(step, text, sight.needs) for step, text in seen.needs_failed.items()]
    return (*findings, *_judge_texts(seen, sight), *(_judge_command(line, sight) for line in seen.commands))


def _judge_texts(seen: Seen, sight: Sight) -> Iterator[Finding]:
    detail = "" if sight.environment is None else sight.environment.detail
    for text in seen.environment_says:
        yield Finding(f"the master says {text!r} of the environment", text in detail, repr(detail))
    status = join_lines(sight.status)
    for text in seen.status_says:
        yield Finding(f"the status says {text!r}", text in status, repr(status))


def _judge_command(line: str, sight: Sight) -> Finding:
    found = sight.commands.get(line, "it was not run")
    return Finding(f"`{line}` succeeds on the master", not found, found or "status 0")


def _judge_data(name: str, needs: NeedsSight) -> Finding:
    wrong = needs.find_incomplete(name)
    found = (
        "; ".join(f"{node}: {digest}" for node, digest in wrong.items()) or f"{len(needs.trees[name])} nodes have it"
    )
    return Finding(f"data {name} is on every node as in S3", not wrong, found)


def _judge_failure(step: str, text: str, needs: NeedsSight) -> Finding:
    said = needs.find_failure(step)
    name = step.partition("data:")[2]
    half = [node for node, digest in needs.trees.get(name, {}).items() if digest not in (ABSENT, needs.expected[name])]
    found = f"{said!r}{f', and half of it in place on {half}' if half else ''}"
    return Finding(f"{step} fails with {text!r} and leaves nothing half-done", text in said and not half, found)


def _equal(name: str, attribute: str) -> Callable[[Any, Sight], Finding]:
    def judge(value: Any, sight: Sight) -> Finding:
        found = getattr(sight, attribute)
        return Finding(f"{name} is {value}", found == value, str(found))

    return judge


def _at_least(name: str, attribute: str) -> Callable[[Any, Sight], Finding]:
    def judge(value: Any, sight: Sight) -> Finding:
        found = getattr(sight, attribute)
        return Finding(f"{name} is at least {value:g}", found is not None and found >= value, _number(found))

    return judge


def _at_most(name: str, attribute: str) -> Callable[[Any, Sight], Finding]:
    def judge(value: Any, sight: Sight) -> Finding:
        found = getattr(sight, attribute)
        return Finding(f"{name} is at most {value:g}", found is not None and found <= value, _number(found))

    return judge


_JUDGES: Mapping[str, Callable[[Any, Sight], Finding]] = {
    "stack": _equal("the stack", "stack"),
    "requested": _equal("the number of nodes requested", "requested"),
    "formed": _equal("the number of nodes formed", "formed"),
    "generation_at_least": _at_least("the generation", "generation"),
    "accuracy_at_least": _at_least("the held-out accuracy", "accuracy"),
    "within_seconds": _at_most("the time in seconds from cause to failure", "failure_seconds"),
    "recovery_seconds_at_most": _at_most("the time in seconds until training goes on", "recovery_seconds"),
    "lost_commits_at_most": _at_most("the number of commits lost", "lost_commits"),
    "object_reads_at_most": _at_most("the number of objects read from S3", "object_reads"),
    "launches_at_most": _at_most("the number of machines launched", "launches"),
    "environment": _equal("the environment", "environment_state"),
}


def _judge_replacement(sight: Sight) -> Finding:
    if not sight.replacements:
        return Finding("a replacement joins", is_held=False, found="no member was launched after the first injection")
    found = ", ".join(sight.replacements)
    if not sight.is_elastic:
        return Finding("a replacement joins", is_held=True, found=found)
    sizes = [recovery.sizes_after for recovery in sight.recoveries]
    has_trained = any(recovery.has_regained_size for recovery in sight.recoveries)
    return Finding("a replacement joins and trains", has_trained, f"{found}; sizes of later worlds {sizes}")


def _judge_files(sight: Sight) -> Finding:
    changed = {name: paths for name, paths in sight.changed_files.items() if paths}
    is_held = bool(sight.changed_files) and not changed
    found = "; ".join(f"{name}: {', '.join(paths[:9])}" for name, paths in changed.items())
    return Finding("files are identical", is_held, found or f"{len(sight.changed_files)} nodes compared")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}" if value == int(value) else f"{value:.3f}"


def _closest(text: str, sight: Sight) -> str:
    return next((line for line in sight.timeline if text in line), f"none of {len(sight.timeline)} lines")
